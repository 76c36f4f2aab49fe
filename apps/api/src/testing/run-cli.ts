import { runCli } from '../cli';
import { Terminal } from '../cli/terminal';

class Recorder extends Terminal {
  stdout = '';
  stderr = '';
  override out(text: string): void {
    this.stdout += text;
  }
  override err(text: string): void {
    this.stderr += text;
  }
}

export interface CliRun {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The command line in this process, on the store at this URL. */
export async function runCliOn(databaseUrl: string, ...args: readonly string[]): Promise<CliRun> {
  const terminal = new Recorder();
  const code = await runCli(['--database-url', databaseUrl, ...args], terminal);
  return { code, stdout: terminal.stdout, stderr: terminal.stderr };
}
