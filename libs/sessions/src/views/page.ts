import { isStorableText } from '@runplane/contracts';
import { z } from 'zod';

/** Text in a cursor, in base64: JSON may write it six times as long. One that was forged is not more than PostgreSQL can read. */
export const placeText = z.base64().refine((encoded) => isStorableText(decodePlace(encoded)));
export const encodePlace = (text: string): string => Buffer.from(text).toString('base64');
export const decodePlace = (encoded: string): string => Buffer.from(encoded, 'base64').toString('utf8');
