import type { Readable } from 'node:stream';

/** What a sink says about a stored stream. */
export interface ArchiveReceipt {
  readonly bytes: number;
  /** Of the stored bytes, in hex. */
  readonly sha256: string;
}

/**
 * Where copies of removed runs go: a folder (createFolderArchive), or a store of your own. Called outside of transactions.
 *
 * A key is 1–300 characters: segments of `[A-Za-z0-9._-]`, none beginning with a dot, joined by slashes.
 */
export interface ArchiveSink {
  /** Stores a stream under a key, whole and durable or not at all; what stood there is replaced. An error of the stream ends it. */
  put(key: string, content: Readable): Promise<ArchiveReceipt>;
  /** Errors: ArchiveNotFound. */
  get(key: string): Promise<Readable>;
}
