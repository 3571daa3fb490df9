// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab/netns"
)

// helperVariable tells the test binary to be one of the helpers instead of running tests.
const helperVariable = "SANDBOX_TEST_HELPER"

// The tests run inside a sandbox, which is the machine to them. The programs that they start are helpers: this same
// binary, which enters a second sandbox inside the first.
func TestMain(m *testing.M) {
	if name := os.Getenv(helperVariable); name != "" {
		var err error
		if passed, err = EnterWith(contextFor(name), filesFor(name)); err != nil {
			if refusal := (*UnavailableError)(nil); errors.As(err, &refusal) {
				fmt.Fprint(os.Stderr, "a refusal: ")
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Unsetenv(helperVariable)
		os.Exit(helpers[name]())
	}
	Main(m)
}

// passed are the files that the helper got from the machine.
var passed []*os.File

// contextFor returns the context of a helper. That of "late" has ended, as if a signal had come before the sandbox.
func contextFor(name string) context.Context {
	if name != "late" {
		return context.Background()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// filesFor opens what the helper "files" gets: the ends of pipes that say "one" and "two".
func filesFor(name string) func() ([]*os.File, error) {
	if name != "files" {
		return nil
	}
	return func() (files []*os.File, err error) {
		for _, word := range []string{"one", "two"} {
			r, w, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			fmt.Fprint(w, word)
			w.Close()
			files = append(files, r)
		}
		return files, nil
	}
}

// printFiles prints what the files say, and what a child has in the place of the first one, which it must not inherit.
func printFiles() int {
	for _, f := range passed {
		text, _ := io.ReadAll(f)
		fmt.Printf("%s ", text)
	}
	cmd := exec.Command("sh", "-c", "ls /proc/self/fd/4 2>/dev/null || printf %s \"$(readlink /proc/self/fd/0)\"")
	cmd.Stdout = os.Stdout
	if cmd.Run() != nil {
		return 1
	}
	return 0
}

// printRun prints every file below /run that its arguments name and that is there.
func printRun() int {
	for _, path := range os.Args[1:] {
		if _, err := os.Stat(path); err == nil {
			fmt.Println(path)
		}
	}
	return 0
}

var helpers = map[string]func() int{
	"facts":   printFacts,
	"echo":    echo,
	"exit":    func() int { return 7 },
	"die":     die,
	"wait":    waitForSignal,
	"late":    waitForSignal,
	"default": readNothing,
	"lab":     func() int { return runLab(1) },
	"labs":    func() int { return runLab(1 << 30) },
	"reap":    orphanChildren,
	"files":   printFiles,
	"run":     printRun,
}

// readNothing does not handle signals. It waits in a system call: an empty select looks like a deadlock to the runtime
// when nothing else runs.
func readNothing() int {
	fmt.Println("up")
	r, w, err := os.Pipe()
	if err != nil {
		return 1
	}
	defer w.Close()
	r.Read(make([]byte, 1))
	return 1
}

// helper returns the command that runs a helper.
func helper(t *testing.T, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+name)
	cmd.Dir = "/"
	return cmd
}

// facts are what a program sees in its sandbox.
type facts struct {
	Inside, Rootless bool
	Hostname         string
	Loopback         string
	Run              []string
	UID              int
	SysIsReadOnly    bool
	FilesSoft        uint64
	FilesHard        uint64
	Marker           string
	NetNS            string
	Processes        int
}

func printFacts() int {
	f := facts{Inside: Inside(), Rootless: Rootless(), UID: os.Getuid(), NetNS: networkNamespace()}
	f.Hostname, _ = os.Hostname()
	if lo, err := net.InterfaceByName("lo"); err == nil {
		f.Loopback = lo.Flags.String()
	}
	entries, _ := os.ReadDir("/run")
	for _, e := range entries {
		f.Run = append(f.Run, e.Name())
	}
	f.SysIsReadOnly = os.Mkdir("/sys/fs/viplab", 0o755).(*os.PathError).Err == syscall.EROFS
	var limit syscall.Rlimit
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	f.FilesHard = limit.Max
	// What a child gets: the Go runtime raises its own process's limit anyway.
	out, _ := exec.Command("sh", "-c", "ulimit -n; echo $"+marker).Output()
	fmt.Sscan(string(out), &f.FilesSoft)
	_, f.Marker, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		if d.Name()[0] >= '1' && d.Name()[0] <= '9' {
			f.Processes++
		}
	}
	if json.NewEncoder(os.Stdout).Encode(f) != nil {
		return 1
	}
	return 0
}

func echo() int {
	io.Copy(os.Stdout, os.Stdin)
	fmt.Fprint(os.Stderr, strings.Join(os.Args[1:], "|"))
	return 0
}

func die() int {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// waitForSignal prints each signal that arrives. It ends with the first, or never if there is an argument.
func waitForSignal() int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	fmt.Println("up")
	for s := range signals {
		fmt.Println(s)
		if len(os.Args) == 1 {
			return 9
		}
	}
	return 0
}

// runLab does for some rounds what labs do: namespaces, links into them, rules, sysctls, mounts, names, and daemons
// that leave their parents. An interrupt ends it.
func runLab(rounds int) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	for range rounds {
		if err := buildLab(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if ctx.Err() != nil {
			return 0
		}
	}
	return 0
}

func buildLab() error {
	outside, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer outside.Close()
	for i := range 4 {
		ns, err := netns.New(fmt.Sprint("ns", i))
		if err != nil {
			return err
		}
		defer ns.Close()
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("veth", i)}, PeerName: "eth0",
			PeerNamespace: netlink.NsFd(ns.Fd())}
		if err := outside.LinkAdd(veth); err != nil {
			return fmt.Errorf("veth: %w", err)
		}
		defer outside.LinkDel(veth)
		daemon := exec.Command("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &")
		if err := ns.Run(daemon); err != nil {
			return fmt.Errorf("daemon: %w", err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	script := "iptables-nft -t nat -A POSTROUTING -j MASQUERADE; mount -t tmpfs x /mnt; ip netns add x; ip netns " +
		"delete x; " +
		"ip route add 10.9.0.0/16 dev lo; ip route delete 10.9.0.0/16"
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// orphanChildren leaves processes behind and succeeds when all of them have been reaped.
func orphanChildren() int {
	for range 20 {
		if err := exec.Command("sh", "-c", "(true &) ; true").Run(); err != nil {
			return 1
		}
	}
	deadline := time.After(10 * time.Second)
	for {
		zombies := 0
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, file := range stats {
			if stat, err := os.ReadFile(file); err == nil && strings.Contains(string(stat), ") Z ") {
				zombies++
			}
		}
		if zombies == 0 {
			return 0
		}
		select {
		case <-deadline:
			fmt.Fprintln(os.Stderr, zombies, "zombies")
			return 1
		case <-time.After(time.Millisecond):
		}
	}
}
