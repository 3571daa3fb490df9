// SPDX-License-Identifier: Apache-2.0

// Command vmrun runs a command in a virtual machine that has another kernel and, read-only, the files of this machine.
// It is what scripts/vm calls.
//
// One executable works on both sides: on the host it prepares and watches the machine, in the guest it is /init. They
// talk over a serial port in frames (see wire.go), so that the command's standard output, standard error and exit code
// come out exactly as they went in, and nothing that the kernel prints gets between them.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/viplab/viplab/internal/release"
)

// exitFault is the exit code for a machine that could not be made, as opposed to a command that failed in it.
const exitFault = 125

func main() {
	if os.Getpid() == 1 && os.Args[0] == guestInit {
		guest() // does not return
	}
	runtime.LockOSThread() // QEMU dies with the thread that started it, so let that be the main thread
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		code = exitFault
	}
	os.Exit(code)
}

func run() (int, error) {
	var outs []string
	kernelName := flag.String("kernel", "6.1", "kernel of Debian 12, 6.1 or 6.12, in QEMU; or uml: user-mode Linux\n"+
		"of the newest kernel of Debian 13's backports, which starts programs faster where KVM does not work")
	flag.Func("out", "a `folder` that the guest may write to, seen there under the same path (repeatable)",
		func(dir string) error {
			err := os.MkdirAll(dir, 0o755)
			if err == nil {
				dir, err = filepath.Abs(dir)
			}
			if err == nil {
				dir, err = filepath.EvalSymlinks(dir)
			}
			outs = append(outs, dir)
			return err
		})
	tell := flag.Bool("accelerator", false, "print what runs the machine, kvm, tcg (software emulation) or uml, and exit")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: scripts/vm [flags] [command [argument ...]]\n"+
			"Without a command: an interactive shell. Cache: $VIPLAB_CACHE, else ~/.cache/viplab\n")
		flag.PrintDefaults()
	}
	flag.Parse()

	if runtime.GOARCH != "amd64" {
		return 0, fmt.Errorf("only amd64 is supported, this is %s", runtime.GOARCH)
	}
	cache, err := release.CacheDir()
	if err == nil {
		err = os.MkdirAll(cache, 0o755)
	}
	if err != nil {
		return 0, err
	}
	k, err := findKernel(cache, *kernelName)
	if err != nil {
		return 0, err
	}
	m := machine{kernel: k, accel: uml}
	if k.name != uml {
		if _, err := exec.LookPath(qemu); err != nil {
			return 0, fmt.Errorf("%s is not installed: run scripts/setup", qemu)
		}
		m.accel, m.why = accelerator(cache, k)
	}
	if *tell {
		fmt.Println(m.accel)
		return 0, nil
	}
	if m.job, err = newJob(flag.Args(), outs, k); err != nil {
		return 0, err
	}
	return runMachine(m)
}

// progress prints what takes time. It goes to standard error, away from the command's output.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...)
}
