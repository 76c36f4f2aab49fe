// The door of apps/api, for whoever serves Runplane's HTTP interface from a process of their own.

export { type Access, type RouteEntry } from './access/authenticate'; // with it, what it adds to Fastify's types
export { createApiKey, issueRunToken, revokeApiKey, type CreateApiKey } from './access/api-keys';
export { API_KEY_PATTERN } from './access/api-key';
export { Credentials } from './access/credentials';
export { buildApp, type App, type AppDeps } from './app';
export { ConfigError, readConfig, type Config } from './config';
export { STATUS_BY_CODE } from './error-status';
export { type LogOptions } from './http/logging';
export { startLoops, type LoopsOf } from './maintenance/loops';
export { runEvery, type Loop, type LoopOptions, type LoopStats } from './maintenance/run-every';
export { serve, type Server, type ServeOptions } from './serve';
