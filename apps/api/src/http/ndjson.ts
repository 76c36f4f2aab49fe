/** Lines of JSON: the form in which a session leaves and comes. */
export const NDJSON = 'application/x-ndjson';
