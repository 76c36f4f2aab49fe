import * as client from '@kubernetes/client-node';
import { Job } from 'kubernetes-models/batch/v1/Job';
import { Secret } from 'kubernetes-models/v1/Secret';

// What the API server of Kubernetes checks in the objects that we send: the published OpenAPI schemas (kubernetes-models has them compiled),
// with `fieldValidation=Strict` no unknown field, and the rules of its validation code that schemas cannot say.

export interface StoredObject {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace: string;
    uid: string;
    resourceVersion: string;
    creationTimestamp: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    ownerReferences?: { uid: string }[];
  };
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- the schema is checked at the door
  [part: string]: any;
}

const ANNOTATION_BYTES_MAX = 256 * 1024;
const SECRET_BYTES_MAX = 1024 * 1024;
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;
const LABEL_VALUE = /^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$/;
const QUALIFIED_PART = /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/;
const QUANTITY = /^[+-]?(\d+|\d+\.\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$/;

/** Everything that is wrong with an object, as the server would list it. */
export function faultsOf(kind: 'Job' | 'Secret', object: unknown): string[] {
  const faults = [...schemaFaults(kind, object), ...unknownFields(object, `V1${kind}`, '')];
  if (faults.length > 0) return faults;
  const typed = object as StoredObject;
  return [...metadataFaults(typed.metadata, kind), ...(kind === 'Job' ? jobFaults(typed) : secretFaults(typed))];
}

function schemaFaults(kind: 'Job' | 'Secret', object: unknown): string[] {
  try {
    if (kind === 'Job') new Job(object as ConstructorParameters<typeof Job>[0]).validate();
    else new Secret(object as ConstructorParameters<typeof Secret>[0]).validate();
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

interface Attribute {
  readonly baseName: string;
  readonly type: string;
}

/** Walks along the generated types of the client: what they do not name, the API does not know. */
function unknownFields(value: unknown, type: string, at: string): string[] {
  const element = /^Array<(.+)>$/.exec(type)?.[1];
  if (element !== undefined) return (value as unknown[]).flatMap((each, index) => unknownFields(each, element, `${at}[${index}]`));
  const model = (client as unknown as Record<string, { getAttributeTypeMap?: () => Attribute[] } | undefined>)[type];
  const attributes = model?.getAttributeTypeMap?.();
  if (attributes === undefined || typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, inner]) => {
    const attribute = attributes.find(({ baseName }) => baseName === name);
    return attribute === undefined ? [`unknown field "${at}${name}"`] : unknownFields(inner, attribute.type, `${at}${name}.`);
  });
}

function metadataFaults(metadata: StoredObject['metadata'], kind: string): string[] {
  const { name, labels = {}, annotations = {}, ownerReferences = [] } = metadata;
  const bytes = Object.entries(annotations).reduce((sum, [key, value]) => sum + Buffer.byteLength(key) + Buffer.byteLength(value), 0);
  return [
    ...(SUBDOMAIN.test(name) && name.length <= (kind === 'Job' ? 63 : 253) ? [] : [`metadata.name: Invalid value: "${name}"`]),
    ...labelFaults(labels, 'metadata.labels'),
    ...Object.keys(annotations).flatMap((key) => (isQualified(key) ? [] : [`metadata.annotations: Invalid value: "${key}"`])),
    ...(bytes <= ANNOTATION_BYTES_MAX ? [] : ['metadata.annotations: Too long']),
    ...ownerReferences.flatMap(({ uid }) => (uid === '' ? ['metadata.ownerReferences[0].uid: must not be empty'] : [])),
  ];
}

function labelFaults(labels: Record<string, string>, at: string): string[] {
  return Object.entries(labels).flatMap(([key, value]) => [
    ...(isQualified(key) ? [] : [`${at}: Invalid value: "${key}"`]),
    ...(LABEL_VALUE.test(value) ? [] : [`${at}: Invalid value: "${value}"`]),
  ]);
}

function isQualified(key: string): boolean {
  const [name = '', prefix, ...rest] = key.split('/').toReversed();
  return rest.length === 0 && QUALIFIED_PART.test(name) && (prefix === undefined || (SUBDOMAIN.test(prefix) && prefix.length <= 253));
}

interface Pod {
  restartPolicy?: string;
  containers: {
    name: string;
    image?: string;
    env?: { name: string }[];
    resources?: { requests?: Record<string, string>; limits?: Record<string, string> };
    volumeMounts?: { name: string; mountPath: string; subPath?: string }[];
  }[];
  volumes?: { name: string; secret?: { secretName?: string; defaultMode?: number } }[];
}

function jobFaults({ spec }: StoredObject): string[] {
  const { template } = spec as { template: { metadata?: { labels?: Record<string, string> }; spec: Pod } };
  const pod = template.spec;
  const volumes = new Set((pod.volumes ?? []).map(({ name }) => name));
  return [
    ...labelFaults(template.metadata?.labels ?? {}, 'spec.template.labels'),
    ...(['Never', 'OnFailure'].includes(pod.restartPolicy ?? '') ? [] : ['spec.template.spec.restartPolicy: Unsupported value']),
    ...(pod.volumes ?? []).flatMap(({ name, secret }) => [
      ...(LABEL.test(name) ? [] : [`volumes.name: Invalid value: "${name}"`]),
      ...(secret === undefined || SUBDOMAIN.test(secret.secretName ?? '') ? [] : ['volumes.secret.secretName: Required value']),
    ]),
    ...pod.containers.flatMap((container) => containerFaults(container, volumes)),
  ];
}

function containerFaults(
  { name, image, env = [], resources = {}, volumeMounts = [] }: Pod['containers'][number],
  volumes: Set<string>,
): string[] {
  const amounts = Object.values({ ...resources.requests, ...resources.limits });
  return [
    ...(LABEL.test(name) ? [] : ['containers.name: Invalid value']),
    ...(image === undefined || image === '' ? ['containers.image: Required value'] : []),
    ...env.flatMap((variable) =>
      /^[-._a-zA-Z][-._a-zA-Z0-9]*$/.test(variable.name) ? [] : [`env.name: Invalid value: "${variable.name}"`],
    ),
    ...amounts.flatMap((amount) => (QUANTITY.test(amount) ? [] : [`resources: Invalid value: "${amount}"`])),
    ...volumeMounts.flatMap(({ name: volume, mountPath, subPath = '' }) => [
      ...(volumes.has(volume) ? [] : [`volumeMounts.name: Not found: "${volume}"`]),
      ...(mountPath === '' || mountPath.includes(':') ? ['volumeMounts.mountPath: Invalid value'] : []),
      ...(subPath.startsWith('/') || subPath.split('/').includes('..') ? ['volumeMounts.subPath: Invalid value'] : []),
    ]),
  ];
}

function secretFaults({ data = {} }: StoredObject): string[] {
  const entries = Object.entries(data as Record<string, string>);
  const bytes = entries.reduce((sum, [, value]) => sum + Buffer.from(value, 'base64').byteLength, 0);
  return [
    ...entries.flatMap(([key, value]) => [
      ...(/^[-._a-zA-Z0-9]{1,253}$/.test(key) ? [] : [`data: Invalid value: "${key}"`]),
      ...(Buffer.from(value, 'base64').toString('base64') === value ? [] : [`data[${key}]: illegal base64 data`]),
    ]),
    ...(bytes <= SECRET_BYTES_MAX ? [] : ['data: Too long']),
  ];
}

/** `a=b,c=d`, as far as we use selectors. */
export function isSelected({ metadata }: StoredObject, selector: string): boolean {
  return selector.split(',').every((term) => {
    const [key = '', value] = term.split('=');
    return key === '' || metadata.labels?.[key] === value;
  });
}
