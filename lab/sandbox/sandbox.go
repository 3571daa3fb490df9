// SPDX-License-Identifier: Apache-2.0

// Package sandbox moves a whole program into Linux namespaces of its own before it does anything.
//
// A harness that builds networks would otherwise leave links, rules, sysctls, mounts and daemons on the machine
// whenever it dies at the wrong moment. Inside the sandbox there is nothing of the machine to touch, and the kernel
// does the cleaning: every process of the lab, however often it forked, ends with process 1 of the sandbox, and every
// namespace with its last process and descriptor.
//
// Three processes make a sandbox, all of them the same executable with the same arguments:
//
//	supervisor   on the machine: starts the next one, hands it signals, exits with its code
//	init         process 1 of the sandbox: sets the world up, starts the next one, reaps orphans
//	program      what the caller wrote; Enter returns only here
//
// Each holds the next one's life: init ends when the supervisor is gone (by Pdeathsig and by the end of a socket), and
// with init the kernel ends everything in its process namespace.
//
// The new namespaces are pid, mount, net, uts and ipc; a user who is not root gets a user namespace too, with one user,
// root.
//
// A command calls Enter, a test binary calls Main. Importing the package changes nothing in a process that neither of
// them started. In process 1, which they did start, the package takes over as soon as it is initialised: process 1
// needs none of the packages that the program is made of, and their initialisation is most of the cost of a start.
package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// StateDir is a folder that only this sandbox sees, empty at the start, gone at the end. It lies on the tmpfs that
// covers /run.
const StateDir = "/run/viplab"

// Hostname is what uname says in the sandbox.
const Hostname = "viplab"

// marker is the environment variable that tells the next process its stage. Enter removes it, so that children of the
// program can make a sandbox of their own.
const marker = "VIPLAB_SANDBOX"

type stage string

const (
	stageOutside stage = ""
	stageInit    stage = "init"
	stageProgram stage = "program"
)

// identity is what a process knows about its place.
type identity struct {
	stage    stage
	outside  string // the network namespace of the supervisor
	rootless bool
	init     string // the process number of init, as the machine counts; of the stage program only
}

var self = identify(os.Getenv(marker))

func init() {
	if self.stage == stageInit {
		os.Exit(runInit())
	}
}

// Inside reports whether this process is the program in a sandbox of this package.
func Inside() bool { return self.stage == stageProgram }

// Rootless reports whether the sandbox has a user namespace of its own: its root is an ordinary user of the machine. It
// is false outside.
func Rootless() bool { return self.rootless }

// TempDir makes a folder whose name begins with prefix: in StateDir, so that it is gone with the sandbox however that
// ends, or in the machine's folder for temporary files where there is no sandbox.
func TempDir(prefix string) (string, error) {
	if Inside() {
		return os.MkdirTemp(StateDir, prefix)
	}
	return os.MkdirTemp("", "viplab-"+prefix)
}

// Door is the command that somebody on the machine puts before another to run it in this sandbox: as root, or as the
// user whose sandbox it is. It is empty outside.
func Door() string {
	if !Inside() {
		return ""
	}
	door := "nsenter --target " + self.init + " --mount --pid --net"
	if self.rootless {
		door += " --user --preserve-credentials"
	}
	return door
}

// Main is for TestMain: it runs the tests inside a sandbox and does not return.
func Main(m interface{ Run() int }) {
	if err := Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// Enter returns nil in the sandbox, and an error where none can be made. On the machine itself it does not return
// otherwise: it waits for the program inside and exits with its code, or with 128 plus the number of the signal that
// ended it. Call it before anything that can be seen: what runs before it runs twice.
//
// The first interrupt (Ctrl-C) goes to the program, which may end in its own time; the second ends the sandbox at once.
// The program is not in the terminal's foreground group, so that it gets each interrupt exactly once; for the same
// reason a terminal as standard input is replaced by /dev/null. Pipes and files pass through.
func Enter() error {
	if Inside() {
		return os.Unsetenv(marker)
	}
	runtime.LockOSThread() // Pdeathsig is tied to the thread that forks, and this one lives as long as the process
	code, err := supervise()
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	os.Exit(code)
	return nil
}

// identify reads a marker. One that does not come from a supervisor outside (somebody exported it) is ignored: the
// network namespace it names must be another one than this process's own.
func identify(value string) identity {
	fields := strings.Split(value, ",")
	if len(fields) != 4 || fields[1] == networkNamespace() {
		return identity{}
	}
	id := identity{stage: stage(fields[0]), outside: fields[1], rootless: fields[2] == "rootless", init: fields[3]}
	if id.stage != stageInit && id.stage != stageProgram || id.stage == stageInit && os.Getpid() != 1 {
		return identity{}
	}
	return id
}

// environ is this process's environment with the marker of the next stage.
func environ(next identity) []string {
	user := "root"
	if next.rootless {
		user = "rootless"
	}
	_ = os.Unsetenv(marker) // of this stage; fails for an empty name only
	env := os.Environ()
	for i, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			env[i] = "PATH=" + withSbin(path)
		}
	}
	return append(env, fmt.Sprintf("%s=%s,%s,%s,%s", marker, next.stage, next.outside, user, next.init))
}

// withSbin adds the folders of administrators' programs to a PATH that lacks them, as that of an ordinary user does,
// who is root in the sandbox. An empty PATH is left alone: somebody wants no programs to be found.
func withSbin(path string) string {
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path != "" && !slices.Contains(filepath.SplitList(path), dir) {
			path += ":" + dir
		}
	}
	return path
}

// networkNamespace names the namespace this thread is in, in a way that no other live namespace shares.
func networkNamespace() string {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
