// SPDX-License-Identifier: Apache-2.0

package lessons

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Shell runs the commands of a lesson, each in a shell of its own, in a folder with the files of the lesson.
type Shell struct {
	// Dir is where the commands start.
	Dir string
	// Env are the variables of the commands.
	Env []string
	// Settle returns when the lab has done what a command has asked for. It follows every command of a step.
	Settle func(ctx context.Context) error
}

// NewShell copies the files of a lesson below a folder, unless they are there, and makes viplab a command, which is the
// program that runs. If the machine has no kubectl, viplab also stands in for that. env are variables beside those of
// this process.
func (l *Lesson) NewShell(folder string, env ...string) (Shell, error) {
	s := Shell{Dir: filepath.Join(folder, "lesson")}
	bin := filepath.Join(folder, "bin")
	s.Env = append(os.Environ(), env...)
	s.Env = append(s.Env, "PATH="+bin+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8")
	if _, err := os.Stat(s.Dir); err == nil {
		return s, nil
	}
	if err := os.Mkdir(bin, 0o700); err != nil {
		return s, err
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	names := []string{"viplab"}
	if _, err := exec.LookPath("kubectl"); err != nil {
		names = append(names, "kubectl")
	}
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			return s, err
		}
	}
	return s, os.CopyFS(s.Dir, l.Files)
}

// command returns the command that runs a line.
func (s Shell) command(ctx context.Context, line string) *exec.Cmd {
	shell := "bash"
	if _, err := exec.LookPath(shell); err != nil {
		shell = "sh"
	}
	cmd := exec.CommandContext(ctx, shell, "-c", line)
	cmd.Dir, cmd.Env = s.Dir, s.Env
	return cmd
}

// drainLimit is how long the output of a program that a command has left in the background is read.
const drainLimit = time.Second

// Output runs a line without input. It returns what the line prints, with a last line for an exit code other than 0,
// and copies it to w.
func (s Shell) Output(ctx context.Context, line string, w io.Writer) (string, error) {
	cmd := s.command(ctx, line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = drainLimit
	var text bytes.Buffer
	out := io.MultiWriter(&text, w)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		fmt.Fprintf(out, "[exit code %d]\n", exit.ExitCode())
		err = nil
	}
	return text.String(), err
}

// Do runs a line of a step as Output does, and returns when the lab has settled.
func (s Shell) Do(ctx context.Context, line string, w io.Writer) (string, error) {
	output, err := s.Output(ctx, line, w)
	return output, errors.Join(err, s.Settle(ctx))
}

// Interact runs a line with the standard streams of this process, and returns when the lab has settled. What the line
// itself returns is no error.
func (s Shell) Interact(ctx context.Context, line string) error {
	cmd := s.command(ctx, line)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = nil
	}
	return errors.Join(err, s.Settle(ctx))
}

// Unmet runs the checks of a step and returns a sentence for each that does not hold.
func (s Shell) Unmet(ctx context.Context, step *Step) ([]string, error) {
	var out []string
	for _, c := range step.Check {
		got, err := s.Output(ctx, c.Run, io.Discard)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(got, c.Want) {
			out = append(out, fmt.Sprintf("%s: want %q, got:\n%s", c.Run, c.Want, strings.TrimRight(got, "\n")))
		}
	}
	return out, nil
}

// Result is what became of a step.
type Result struct {
	Step string `json:"step"`
	// TookMS is how long the command took, and SettledMS how long the lab then took to settle, in milliseconds.
	TookMS    int64 `json:"took_ms"`
	SettledMS int64 `json:"settled_ms"`
	// Problems are differences from the recorded output and checks that do not hold.
	Problems []string `json:"problems,omitempty"`
}

// Try runs a step and compares what it prints with what was recorded.
func (l *Lesson) Try(ctx context.Context, s Shell, step *Step) (Result, error) {
	began := time.Now()
	r := Result{Step: step.ID}
	output, err := s.Output(ctx, step.Run, io.Discard)
	r.TookMS = time.Since(began).Milliseconds()
	if err = errors.Join(err, s.Settle(ctx)); err != nil {
		return r, err
	}
	r.SettledMS = time.Since(began).Milliseconds() - r.TookMS
	if step.Recorded {
		r.Problems = l.Differences(step, output)
	}
	unmet, err := s.Unmet(ctx, step)
	r.Problems = append(r.Problems, unmet...)
	return r, err
}

// Record writes an output of a step into the folder of the lesson, unless it differs from the recorded one only where
// it is masked.
func (l *Lesson) Record(folder string, step *Step, output string) error {
	if step.Recorded && len(l.Differences(step, output)) == 0 {
		return nil
	}
	step.Output, step.Recorded = output, true
	path := filepath.Join(folder, OutputFile(step))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.WriteFile(path, []byte(output), 0o644)
}
