/** A step of the demo did not happen. */
export class DemoFailed extends Error {
  override readonly name = 'DemoFailed';
}
