import type { Route } from '..';
import { previewRetentionRoute } from './preview-retention';

export const adminRoutes: readonly Route[] = [previewRetentionRoute];
