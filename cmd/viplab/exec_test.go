// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A lab that several tests look into.
func withLab(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() { nothingLeft(t) })
	up(t, "looked-into", append([]string{"--ip", "4"}, args...)...)
}

func TestExec(t *testing.T) {
	withLab(t, "--nodes", "1", "-f", write(t, "web.yaml", webLab))
	pod := strings.TrimPrefix(strings.Fields(succeeds(t, "get", "pods", "-o", "name"))[0], "pod/")
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"n1 -- ip -4 -br address show dev cni0", "10.244.1.1/24", 0},
		{"client ip -br address", "192.168.7.201/24", 0},
		{"client -- curl -s 192.168.7.11:30080", `"server":"default/web-`, 0},
		{pod + " -- cat /etc/resolv.conf", "search default.svc.cluster.local", 0},
		{"pod/" + pod + " -- curl -s http://web/hello", `"nonce":"/hello"`, 0},
		{"-n kube-system coredns -- cat /etc/hosts", "coredns", 0},
		{"router -- sh -c exit·7", "", 7},
		{"router -- sh -c kill·-9·$$", "", 137},
		{"n1 -- nosuchprogram", "", 127},
		{"nowhere -- ls", "", 2},
	} {
		args := strings.Fields("exec " + c.line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "·", " ")
		}
		code, stdout, stderr := outcome(t, args...)
		if code != c.code || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: exit code %d, %q, %q; want %d and %q", c.line, code, stdout, stderr, c.code, c.want)
		}
	}
	cmd := viplab(t, "exec", "n1", "--", "tr", "a-z", "A-Z")
	cmd.Stdin = strings.NewReader("hello")
	if out, err := cmd.Output(); err != nil || string(out) != "HELLO" {
		t.Errorf("through a pipe: %q, %v", out, err)
	}
}

func TestCompletion(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "web.yaml", webLab))
	pod := strings.TrimPrefix(strings.Fields(succeeds(t, "get", "pods", "-o", "name"))[0], "pod/")
	for _, c := range []struct {
		line, wants, lacks string
	}{
		{"exec |", "n1 n2 client router " + pod, "web"},
		{"exec -n kube-system |", "n1 coredns", ""},
		{"exec -n |", "default kube-system", "n1"},
		{"logs |", pod, "n1"},
		{"probe |", "client " + pod, "svc/web"},
		{"probe client |", "svc/web n2", ""},
		{"conntrack |", "n1 n2", "client"},
		{"rules |", "n1 n2", "client"},
		{"capture |", "n1 lan", "svc/web"},
		{"get |", "services endpointslices", "n1"},
		{"get services |", "web kubernetes", "n1"},
		{"get svc/|", "svc/web", "n1"},
		{"delete deployments |", "web", "n1"},
		{"down |", "looked-into", "n1"},
		{"down looked-into |", "", "looked-into"},
		{"status --lab |", "looked-into", "n1"},
		{"switch --proxier |", "nftables ipvs", "n1"},
		{"status -o |", "json yaml", "n1"},
	} {
		line, word, _ := strings.Cut(c.line, "|")
		words := append([]string{"__complete"}, strings.Fields(line)...)
		if strings.HasSuffix(line, "/") { // a word has begun
			words, word = words[:len(words)-1], words[len(words)-1]
		}
		out := succeeds(t, append(words, word)...)
		offered := strings.Fields(out)
		for _, want := range strings.Fields(c.wants) {
			if !slices.Contains(offered, want) {
				t.Errorf("%s: %q is not offered:\n%s", c.line, want, out)
			}
		}
		if c.lacks != "" && slices.Contains(offered, c.lacks) {
			t.Errorf("%s: %q is offered:\n%s", c.line, c.lacks, out)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := succeeds(t, "completion", shell); !strings.Contains(out, "__complete") {
			t.Errorf("the completion of %s:\n%s", shell, out)
		}
	}
}

func TestOutputForPrograms(t *testing.T) {
	withLab(t, "--nodes", "1")
	for line, want := range map[string]string{
		"ls -o json": `"kubeconfig": "/run/viplab-labs/looked-into/kubeconfig"`, "ls -o yaml": "- age: ",
		"status -o json": `"proxier": "iptables"`, "status -o yaml": "name: looked-into", "get nodes -o yaml": "kind: NodeList",
	} {
		if out := succeeds(t, strings.Fields(line)...); !strings.Contains(out, want) {
			t.Errorf("viplab %s lacks %q:\n%s", line, want, out)
		}
	}
	refused(t, "ls -o wide", `--output: "wide": want json or yaml`)
	succeeds(t, "down", "looked-into")
	if out := succeeds(t, "ls", "-o", "json"); out != "[]\n" {
		t.Errorf("without labs: %q", out)
	}
}

func TestExecOnATerminal(t *testing.T) {
	master, slave, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	withLab(t, "--nodes", "1")
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 99}); err != nil {
		t.Fatal(err)
	}
	cmd := viplab(t, "exec", "n1", "--", "sh", "-c", "stty size; read line; echo got $line; exec sh -c 'exit 5'")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	lines := bufio.NewScanner(master)
	awaitLine(t, lines, "33 99")
	fmt.Fprint(master, "word\r")
	awaitLine(t, lines, "got word")
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
}

func awaitLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), want) {
			return
		}
	}
	t.Fatalf("no line %q before the end: %v", want, lines.Err())
}

// A program in the lab, in a node or in a pod, ends with the command that has started it, and that with its lab.
func TestTheEndDuringExec(t *testing.T) {
	pod := write(t, "pod.yaml", sleeper)
	for name, end := range map[string]func(cmd *exec.Cmd, holder int){
		"the command is killed":      func(cmd *exec.Cmd, _ int) { cmd.Process.Kill() },
		"the command is interrupted": func(cmd *exec.Cmd, _ int) { cmd.Process.Signal(os.Interrupt) },
		"the lab goes down":          func(*exec.Cmd, int) { down("looked-into") },
		"the lab is killed":          func(_ *exec.Cmd, holder int) { syscall.Kill(holder, unix.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			withLab(t, "--nodes", "1", "-f", pod)
			holder := holder(t, "looked-into")
			var awaits []func()
			for _, place := range []string{"n1", "sleeper"} {
				awaits = append(awaits, execUntil(t, place, func(cmd *exec.Cmd) { end(cmd, holder) }))
			}
			for _, await := range awaits {
				await()
			}
			if left := processes("sleep", "31415"); len(left) > 0 {
				t.Errorf("the programs %v are left", left)
			}
		})
	}
}

// execUntil starts a program with a child in a place. The returned function calls end and waits for their end.
func execUntil(t *testing.T, place string, end func(*exec.Cmd)) func() {
	t.Helper()
	cmd := viplab(t, "exec", place, "--", "sh", "-c", "echo up; sleep 31415; echo")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return func() {
		defer r.Close()
		end(cmd)
		// The pipe ends when the last process that holds it has ended.
		if _, err := io.ReadAll(out); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the command succeeded")
		}
	}
}

func TestObjectsOfALab(t *testing.T) {
	withLab(t, "--nodes", "1")
	web := write(t, "web.yaml", webLab)
	for _, c := range []struct{ line, want string }{
		{"apply -f " + web, "deployments/web created\nservices/web created\n"},
		{"apply -f " + web, "services/web unchanged\n"},
		{"get svc", "80:30080/TCP"},
		{"get deploy/web -o json", `"readyReplicas": 2`},
		{"get all -A", "service/kube-dns"},
		{"get svc -l app=none", "No services found."},
		{"switch --proxier nftables", "lab looked-into: proxier nftables\n"},
		{"exec client -- curl -s 192.168.7.11:30080", `"server":"default/web-`},
		{"exec n1 -- nft list tables", "kube-proxy"},
		{"rules n1", "nftables: table ip kube-proxy, chain nat-prerouting"},
		{"switch --proxier iptables", "proxier iptables"},
		{"rules n1", "-A KUBE-SVC-"},
		{"exec client -- curl -s 192.168.7.11:30080", `"server":"default/web-`},
		{"status", "proxier iptables"},
		{"delete svc web", "services/web deleted"},
		{"delete -f " + write(t, "rest.yaml", strings.Split(webLab, "---")[0]), "deployments/web deleted"},
	} {
		if out := succeeds(t, strings.Fields(c.line)...); !strings.Contains(out, c.want) {
			t.Errorf("viplab %s lacks %q:\n%s", c.line, c.want, out)
		}
	}
	refused(t, "get things", `there is no kind "things"`, "endpointslices")
	refused(t, "get svc nosuch", `"nosuch" not found`)
	refused(t, "apply", "want -f FILE")
	refused(t, "delete", "want either -f FILE or KIND NAME")
	refused(t, "rules n9", `"n9" is not a node`)
	refused(t, "switch", "want --proxier or --exec")
	refused(t, "switch --proxier nosuch", `unknown proxier "nosuch"`)
	refused(t, "exec --lab other n1", `--lab: no lab "other" runs: there is looked-into`)
}
