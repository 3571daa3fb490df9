// SPDX-License-Identifier: Apache-2.0

// Package sandbox moves a whole program into Linux namespaces of its own before the program does anything.
//
// A harness that builds networks would otherwise leave links, rules, sysctls, mounts and daemons on the machine when it
// dies at the wrong moment. Here the kernel cleans up: every process of the lab ends with process 1 of the sandbox, and
// every namespace with its last process and descriptor.
//
// A sandbox consists of three processes, all of the same executable with the same arguments:
//
//	supervisor   on the machine: starts init, forwards signals to it, exits with its code
//	init         process 1 of the sandbox: sets up mounts and loopback, starts the program, reaps orphans
//	program      the caller's code; Enter returns only here
//
// Each ends with the one before: init by Pdeathsig and the end of a socket, and all others by the kernel.
//
// The new namespaces are pid, mount, net, uts and ipc, and for a user who is not root a user namespace.
//
// A command calls Enter, a test binary Main. In process 1 the package takes over as soon as it is initialised, without
// the other packages of the program, whose initialisation is most of the cost of a start.
package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// StateDir is a directory of this sandbox alone, on the tmpfs that covers /run. It is empty at the start.
const StateDir = "/run/viplab"

// Hostname is the sandbox's host name (uname -n).
const Hostname = "viplab"

// marker is the variable that holds the stage of the next process. Enter removes it, so that sandboxes can be nested.
const marker = "VIPLAB_SANDBOX"

type stage string

const (
	stageOutside stage = ""
	stageInit    stage = "init"
	stageProgram stage = "program"
)

// identity describes a process's place in the sandbox.
type identity struct {
	stage    stage
	outside  string // the network namespace of the supervisor
	rootless bool
	init     string // process number of init on the machine; set in the program only
	files    int    // how many descriptors EnterWith passes in
}

var self = identify(os.Getenv(marker))

func init() {
	if self.stage == stageInit {
		os.Exit(runInit())
	}
}

// Inside reports whether this process is the program in a sandbox of this package.
func Inside() bool { return self.stage == stageProgram }

// Rootless reports whether the sandbox has a user namespace, whose root is an ordinary user of the machine.
func Rootless() bool { return self.rootless }

// TempDir makes a temporary directory: in StateDir, or outside a sandbox in that of the machine.
func TempDir(prefix string) (string, error) {
	if Inside() {
		return os.MkdirTemp(StateDir, prefix)
	}
	return os.MkdirTemp("", "viplab-"+prefix)
}

// EnterCommand returns the prefix that runs a command in this sandbox from the machine, or "" outside a sandbox.
func EnterCommand() string {
	if !Inside() {
		return ""
	}
	prefix := "nsenter --target " + self.init + " --mount --pid --net"
	if self.rootless {
		prefix += " --user --preserve-credentials"
	}
	return prefix
}

// Main runs the tests inside a sandbox and does not return. Call it from TestMain. The workers of "go test -fuzz" stay
// in the sandbox of the process that has started them, which talks to them over descriptors.
func Main(m interface{ Run() int }) {
	if !slices.Contains(os.Args, "-test.fuzzworker") {
		if err := Enter(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// Enter returns nil inside the sandbox, and an error if it cannot make one. On the machine itself it does not return,
// but exits with the code of the program inside, or 128 plus the number of the signal that ended it. Call it before any
// visible effect: the code before it runs twice.
//
// A context that ends asks the program to end, by SIGTERM. With signal.NotifyContext, no signal gets lost that arrives
// before the sandbox is there.
//
// The first interrupt (Ctrl-C) goes to the program; the second ends the sandbox at once. The program is not in the
// foreground group, so that it gets each interrupt once, and /dev/null replaces a terminal as its standard input.
func Enter(ctx context.Context) error {
	_, err := EnterWith(ctx, nil)
	return err
}

// EnterWith is Enter for a program that needs files and sockets of the machine. It calls open on the machine, in the
// supervisor alone, and returns the same files inside. They stay open in all three processes: whoever waits for the
// end of a lock or of a socket waits for the end of the sandbox.
func EnterWith(ctx context.Context, open func() ([]*os.File, error)) ([]*os.File, error) {
	if Inside() {
		files := make([]*os.File, self.files)
		for i := range files {
			unix.CloseOnExec(firstFile + i)
			files[i] = os.NewFile(uintptr(firstFile+i), "passed in")
		}
		return files, os.Unsetenv(marker)
	}
	var files []*os.File
	if open != nil {
		var err error
		if files, err = open(); err != nil {
			return nil, err
		}
	}
	runtime.LockOSThread() // Pdeathsig is tied to the forking thread, and this one lives as long as the process
	code, err := supervise(ctx, files)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	if ended := unix.Signal(code - 128); slices.Contains(forwarded, os.Signal(ended)) {
		fmt.Fprintf(os.Stderr, "%s: ended by %s\n", filepath.Base(os.Args[0]), unix.SignalName(ended))
	}
	os.Exit(code)
	return nil, nil
}

// firstFile is the program's descriptor of the first file that EnterWith passes in.
const firstFile = 3

// identify parses a marker. It ignores one without a supervisor outside: the network namespaces must differ.
func identify(value string) identity {
	fields := strings.Split(value, ",")
	if len(fields) != 5 || fields[1] == networkNamespace() {
		return identity{}
	}
	id := identity{stage: stage(fields[0]), outside: fields[1], rootless: fields[2] == "rootless", init: fields[3]}
	var err error
	if id.files, err = strconv.Atoi(fields[4]); err != nil || id.files < 0 {
		return identity{}
	}
	if id.stage != stageInit && id.stage != stageProgram || id.stage == stageInit && os.Getpid() != 1 {
		return identity{}
	}
	return id
}

// environ returns this process's environment with the marker of the next stage.
func environ(next identity) []string {
	user := "root"
	if next.rootless {
		user = "rootless"
	}
	_ = os.Unsetenv(marker) // of this stage; fails only for an empty name
	env := os.Environ()
	for i, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			env[i] = "PATH=" + withSbin(path)
		}
	}
	return append(env, fmt.Sprintf("%s=%s,%s,%s,%s,%d", marker, next.stage, next.outside, user, next.init, next.files))
}

// withSbin adds the sbin directories to the PATH of an ordinary user. It leaves an empty PATH alone.
func withSbin(path string) string {
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path != "" && !slices.Contains(filepath.SplitList(path), dir) {
			path += ":" + dir
		}
	}
	return path
}

// networkNamespace returns an identifier of this thread's network namespace that no other live namespace shares.
func networkNamespace() string {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
