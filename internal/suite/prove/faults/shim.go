// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/exec"
)

// Proxiers run shims instead of tools, because the first folder of PATH holds this executable under the names of the
// tools. A shim runs the tool of the same name that comes next in PATH, with a changed standard input.

// The environment variables of a shim: the name of the fault, and the folders of PATH where it may find the shims.
const (
	faultVariable  = "VIPLAB_FAULT"
	folderVariable = "VIPLAB_FAULT_FOLDERS"
)

// touchedFile is the file in the folder of shims to which each shim that has changed its input appends a byte.
const touchedFile = "touched"

// shims is the folder that holds a link to this executable for each program.
type shims struct{ record *os.File }

// installShims puts shims before all programs that this process and its children look up from now on.
//
// PATH names the folder twice: through a descriptor of this process, because a proxier that runs as a process of a node
// has its own /run, without the folder; and by its own name, because a program in a container does not see this
// process.
func installShims(f Fault) (*shims, error) {
	if os.Getenv(faultVariable) != "" {
		return nil, errors.New("there is a fault in this process already")
	}
	dir, err := sandbox.TempDir("faults-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for shims: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for name := range programs {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	record, err := os.OpenFile(filepath.Join(dir, touchedFile), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	folders := fmt.Sprintf("/proc/%d/fd/%d%c%s", os.Getpid(), fd, filepath.ListSeparator, dir)
	return &shims{record}, errors.Join(
		os.Setenv(faultVariable, f.Name), os.Setenv(folderVariable, folders), os.Setenv(exec.ToolFolderVariable, dir),
		os.Setenv("PATH", folders+string(filepath.ListSeparator)+os.Getenv("PATH")),
	)
}

func (s *shims) touched() int {
	if s == nil {
		return 0
	}
	info, err := s.record.Stat()
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// Shim acts as a shim, and does not return, if the executable was started under the name of a tool. An executable that
// seeds faults must call it first.
func Shim() {
	tool, known := programs[filepath.Base(os.Args[0])]
	name := os.Getenv(faultVariable)
	if !known || name == "" {
		return
	}
	if err := execTool(tool, name); err != nil {
		fmt.Fprintf(os.Stderr, "%s with fault %s: %v\n", os.Args[0], name, err)
		os.Exit(125)
	}
}

// execTool executes the tool, with a changed input if the fault has rewrites for it.
func execTool(tool Tool, fault string) error {
	f, err := Find(fault)
	if err != nil {
		return err
	}
	shims := filepath.SplitList(os.Getenv(folderVariable))
	path := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		return slices.Contains(shims, dir)
	})
	if err := os.Setenv("PATH", strings.Join(path, string(filepath.ListSeparator))); err != nil {
		return err
	}
	program, err := osexec.LookPath(filepath.Base(os.Args[0]))
	if err != nil {
		return err
	}
	if !reads(tool, os.Args[1:]) {
		return unix.Exec(program, os.Args, os.Environ())
	}
	code, err := runWithChangedInput(program, f.Text, tool)
	if err == nil {
		os.Exit(code)
	}
	return err
}

// reads reports whether a tool with these arguments reads rules from its standard input.
func reads(tool Tool, args []string) bool {
	has := func(words ...string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return slices.Contains(words, a) })
	}
	switch tool {
	case NFT:
		return has("-f", "--file") && has("-", "/dev/stdin")
	case IPSet:
		return has("restore", "-R", "-restore", "--restore")
	default:
		return true
	}
}

// runWithChangedInput runs the tool with the arguments of this process, and returns its exit code. The tool gets the
// input of this process, rewritten, as it comes: a proxier may keep a tool running and wait for its answers.
func runWithChangedInput(path string, rewrites []Rewrite, tool Tool) (code int, err error) {
	runtime.LockOSThread() // the tool ends with the thread that starts it (PR_SET_PDEATHSIG(2const))
	cmd := osexec.Command(path)
	cmd.Args, cmd.Stdout, cmd.Stderr = os.Args, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	input, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	failed := make(chan error, 1)
	go func() {
		if err := changeInput(input, os.Stdin, rewrites, tool); err != nil {
			failed <- err
			_ = cmd.Process.Kill() // fails if the tool has ended
		}
		_ = input.Close() // fails if the tool has ended
	}()
	err = cmd.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
	}
	if exit := (*osexec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// changeInput copies the input, rewritten, and records the changes. It holds no complete line back. It returns nil if
// the tool ends before its input does.
func changeInput(to io.Writer, from io.Reader, rewrites []Rewrite, tool Tool) error {
	var rest []byte
	buffer := make([]byte, 64<<10)
	for {
		n, end := from.Read(buffer)
		if end != nil && end != io.EOF {
			return end
		}
		rest = append(rest, buffer[:n]...)
		lines := rest
		if end == nil {
			lines = rest[:bytes.LastIndexByte(rest, '\n')+1]
		}
		output, changed, err := rewrite(rewrites, tool, lines)
		if changed > 0 {
			err = errors.Join(err, recordTouch())
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(output); err != nil || end == io.EOF {
			return nil
		}
		rest = rest[len(lines):]
	}
}

// recordTouch appends a byte to the file in the first folder of shims that this process sees.
func recordTouch() error {
	var failed error
	for _, folder := range filepath.SplitList(os.Getenv(folderVariable)) {
		file, err := os.OpenFile(filepath.Join(folder, touchedFile), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		_, err = file.Write([]byte{'x'})
		return errors.Join(err, file.Close())
	}
	return failed
}
