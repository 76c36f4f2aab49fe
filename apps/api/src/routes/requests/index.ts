import type { Route } from '..';
import { getApprovalRoute } from './get-approval';
import { getInputRequestRoute } from './get-input-request';
import { getRunApprovalRoute } from './get-run-approval';
import { getRunInputRoute } from './get-run-input';
import { listPendingApprovalsRoute } from './list-pending-approvals';
import { listPendingInputsRoute } from './list-pending-inputs';
import { requestApprovalRoute } from './request-approval';
import { requestInputRoute } from './request-input';
import { requestRunApprovalRoute } from './request-run-approval';
import { requestRunInputRoute } from './request-run-input';
import { resolveApprovalRoute } from './resolve-approval';
import { resolveInputRoute } from './resolve-input';

export const requestRoutes: readonly Route[] = [
  requestRunApprovalRoute,
  getRunApprovalRoute,
  requestRunInputRoute,
  getRunInputRoute,
  requestApprovalRoute,
  getApprovalRoute,
  resolveApprovalRoute,
  requestInputRoute,
  getInputRequestRoute,
  resolveInputRoute,
  listPendingApprovalsRoute,
  listPendingInputsRoute,
];
