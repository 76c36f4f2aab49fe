import type { Route } from '..';
import { exportSessionRoute } from './export-session';
import { forkSessionRoute } from './fork-session';
import { importSessionRoute } from './import-session';

export const sessionCopyRoutes: readonly Route[] = [forkSessionRoute, exportSessionRoute, importSessionRoute];
