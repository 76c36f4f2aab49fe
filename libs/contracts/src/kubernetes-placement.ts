import { z } from 'zod';

// What an operator says about the Jobs of a profile. Checked when the process starts, by the rules of the Kubernetes API: a typing error is
// found then and not by the first run.

const name = (max: number, pattern: RegExp, rule: string) =>
  z
    .string()
    .min(1)
    .max(max)
    .regex(pattern, { error: `must be ${rule}` });

const dnsLabel = name(63, /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/, 'a DNS label: lower-case letters, digits and inner hyphens');
const dnsName = name(253, /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/, 'a DNS name: lower-case letters, digits, inner hyphens and dots');
const qualifiedName = name(
  317,
  /^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/,
  'a label name, with or without a DNS prefix',
);
const labelValue = z.string().regex(/^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$/, { error: 'must be a label value' });
const quantity = name(40, /^\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei|e\d+)?$/, 'a quantity like 500m or 2Gi');
const quantities = z.record(qualifiedName, quantity).default({});
const variable = name(200, /^(?!RUNPLANE_)[A-Za-z_][A-Za-z0-9_]*$/, 'the name of a variable that is not one of ours (RUNPLANE_…)');
const absolutePath = name(400, /^\/[A-Za-z0-9._/-]+$/, 'an absolute path');
const id = z.int().min(0).max(2_147_483_647);

const Toleration = z.strictObject({
  key: qualifiedName.optional(),
  operator: z.enum(['Exists', 'Equal']).optional(),
  value: labelValue.optional(),
  effect: z.enum(['NoSchedule', 'PreferNoSchedule', 'NoExecute']).optional(),
  tolerationSeconds: z.int().min(0).optional(),
});

/** Variables of the runner from an object of the namespace, which the operator keeps there. */
const EnvironmentSource = z.union([
  z.strictObject({ secret: dnsName, prefix: variable.optional() }),
  z.strictObject({ configMap: dnsName, prefix: variable.optional() }),
]);

/** Where and how the Kubernetes launcher runs the runners of a profile; written by the operator, never taken from a request. */
export const KubernetesPlacement = z.strictObject({
  namespace: dnsLabel,
  /** Holds the runner and the program of the profile. */
  image: z.string().min(1).max(500),
  imagePullPolicy: z.enum(['Always', 'IfNotPresent', 'Never']).optional(),
  imagePullSecrets: z.array(dnsName).max(20).default([]),
  /** The runner program and its arguments; the image's entry point when absent. */
  runnerCommand: z.array(z.string().min(1)).min(1).optional(),
  /** Of the pod. Its token is mounted only when one is named. */
  serviceAccountName: dnsName.optional(),
  resources: z.strictObject({ requests: quantities, limits: quantities }).default({ requests: {}, limits: {} }),
  nodeSelector: z.record(qualifiedName, labelValue).default({}),
  tolerations: z.array(Toleration).max(50).default([]),
  /** For the runner; a program sees those of them that the profile's `envAllow` names. */
  env: z.record(variable, z.string().max(32_768)).default({}),
  envFrom: z.array(EnvironmentSource).max(20).default([]),
  /** More labels of the pods, for network policies and the like. */
  podLabels: z
    .record(qualifiedName, labelValue)
    .default({})
    .refine((labels) => !Object.keys(labels).some((label) => /^(runplane\.dev|app\.kubernetes\.io|batch\.kubernetes\.io)\//.test(label)), {
      error: 'must not name our own labels',
    }),
  /** Workspaces of the pod: an empty folder, or a tenant's folder of a claimed volume. */
  workspace: z
    .strictObject({ mountPath: absolutePath.default('/workspace'), claimName: dnsName.optional(), sizeLimit: quantity.optional() })
    .default({ mountPath: '/workspace' }),
  security: z
    .strictObject({ runAsUser: id.optional(), runAsGroup: id.optional(), fsGroup: id.optional(), readOnlyRootFilesystem: z.boolean() })
    .partial()
    .default({}),
  /** The Job is ended by Kubernetes after so long, whatever its run says. */
  maxDurationMs: z.int().min(1_000).max(2_592_000_000).optional(),
  /** How long an ended Job can be looked at. */
  keptMs: z.int().min(60_000).max(2_592_000_000).default(3_600_000),
});
export type KubernetesPlacement = z.infer<typeof KubernetesPlacement>;
