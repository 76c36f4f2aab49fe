import { sql, type Sql } from '@runplane/database';

/** A further part of the statement that ends run `r`: what its search looks through grows by its failure. */
export const addSearchText = (text: string): Sql => sql`, searched AS (
  UPDATE runplane.run_search s SET text = s.text || E'\n' || ${text}::text FROM r WHERE s.tenant_id = r.tenant_id AND s.run_id = r.id)`;
