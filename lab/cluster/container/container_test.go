// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/sandbox"
)

// greeting makes this executable a program that needs no other file.
const greeting = "CONTAINER_TEST_GREETING"

func TestMain(m *testing.M) {
	if g := os.Getenv(greeting); g != "" {
		fmt.Println(g)
		os.Exit(0)
	}
	sandbox.Main(m)
}

// world is a pod for a test.
func world(t *testing.T) *Pod {
	t.Helper()
	ns := nstest.NewNS(t, "pod")
	nstest.Up(t, ns, "lo")
	pod, err := NewPod(ns, "web-0")
	nstest.Must(t, err)
	t.Cleanup(func() { nstest.Must(t, pod.Close()) })
	return pod
}

var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

func shell(script string) Command {
	return Command{Args: []string{"sh", "-c", script}, Env: environment}
}

// output runs a shell script in a container of its own, and returns what it prints and its exit code.
func output(t *testing.T, pod *Pod, c Command, files Files) (string, int) {
	t.Helper()
	var out strings.Builder
	started, err := pod.Start(c, files, IO{Out: &out, Err: &out})
	nstest.Must(t, err)
	code := started.ExitCode()
	nstest.Must(t, started.Close())
	return strings.TrimSpace(out.String()), code
}

func TestAContainerHasItsOwnWorld(t *testing.T) {
	pod := world(t)
	for _, c := range []struct{ script, want string }{
		{"echo $$", "1"},
		{"hostname", "web-0"},
		{"ls /tmp /run", "/run:\nlock\n\n/tmp:"},
		{"echo /proc/[0-9]*", "/proc/1"},
		{"echo hello >/etc/greeting && cat /etc/greeting", "hello"},
		{"ls /sys/class/net", "lo"},
		{"ls /dev", "core\nfd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero"},
		{"echo gone >/dev/null && head -c 3 /dev/zero | od -An -tx1", "00 00 00"},
		{"ls /etc/greeting 2>&1 || echo none", "ls: cannot access '/etc/greeting': No such file or directory\nnone"},
		{"pwd; exit 7", "/"},
	} {
		if got, _ := output(t, pod, shell(c.script), Files{}); got != c.want {
			t.Errorf("%s: %q, want %q", c.script, got, c.want)
		}
	}
}

func TestTheRootCanBeAFolder(t *testing.T) {
	pod, root := world(t), t.TempDir()
	self, err := os.ReadFile("/proc/self/exe")
	nstest.Must(t, err)
	nstest.Must(t, os.WriteFile(filepath.Join(root, "program"), self, 0o755))
	greet := Command{Args: []string{"/program"}, Env: []string{greeting + "=hello"}}
	if got, code := output(t, pod, greet, Files{Root: root}); got != "hello" || code != 0 {
		t.Errorf("%d: %s", code, got)
	}
	_, err = pod.Start(shell("true"), Files{Root: root}, IO{})
	if want := "executable file not found in $PATH"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if entries, _ := os.ReadDir(root); len(entries) != 1 {
		t.Errorf("the folder has %v", entries)
	}
}

func TestMounts(t *testing.T) {
	pod, folder := world(t), t.TempDir()
	nstest.Must(t, os.WriteFile(filepath.Join(folder, "hosts"), []byte("10.0.0.1 me"), 0o644))
	files := Files{Mounts: []Mount{
		{Source: filepath.Join(folder, "hosts"), Target: "/etc/hosts", ReadOnly: true},
		{Source: folder, Target: "/srv/deep/data"},
		{Source: folder, Target: "/srv/fixed", ReadOnly: true},
	}}
	const script = "cat /etc/hosts; chmod 777 /etc/hosts; echo x >/srv/fixed/x; echo new >/srv/deep/data/new"
	got, code := output(t, pod, shell(script), files)
	if !strings.HasPrefix(got, "10.0.0.1 me") || strings.Count(got, "Read-only file system") != 2 || code != 0 {
		t.Errorf("%d: %s", code, got)
	}
	if data, err := os.ReadFile(filepath.Join(folder, "new")); string(data) != "new\n" {
		t.Errorf("what the container wrote: %q, %v", data, err)
	}
	const fixed = "touch /x /etc/x /usr/x; touch /tmp/x /run/x /dev/shm/x && echo written"
	if got, _ := output(t, pod, shell(fixed), Files{ReadOnly: true}); strings.Count(got, "Read-only file system") != 3 ||
		!strings.HasSuffix(got, "written") {
		t.Error(got)
	}
}

func TestAFullContainer(t *testing.T) {
	pod := world(t)
	const script = "head -c 3000000 /dev/zero >/big; head -c 3000000 /dev/zero >/tmp/big; echo >/etc/more || exit 9"
	got, code := output(t, pod, shell(script), Files{Space: 1 << 20})
	if strings.Count(got, "No space left on device") < 2 {
		t.Errorf("%d: %s", code, got)
	}
	if got, _ := output(t, pod, shell("echo still >/big && cat /big"), Files{Space: 1 << 20}); got != "still" {
		t.Errorf("the next container: %s", got)
	}
}

// The sizes are those of a message whose last byte json.Decoder leaves unread.
func TestMessagesOfAllSizes(t *testing.T) {
	pod := world(t)
	for _, size := range []int{512, 1536, 3584} {
		c := shell("true")
		c.Env = append(c.Env, "PAD=")
		text, err := json.Marshal(stage{Command: c, Files: &Files{Space: 1 << 30}})
		nstest.Must(t, err)
		c.Env[len(c.Env)-1] += strings.Repeat("x", size-len(text))
		if _, code := output(t, pod, c, Files{}); code != 0 {
			t.Errorf("%d bytes: exit code %d", size, code)
		}
	}
}

func TestExec(t *testing.T) {
	pod := world(t)
	began, out := io.Pipe()
	c, err := pod.Start(shell("echo mine >/tmp/file; echo; exec sleep infinity"), Files{}, IO{Out: out})
	nstest.Must(t, err)
	_, err = began.Read(make([]byte, 1))
	nstest.Must(t, err)
	exec := func(in string, command Command) (string, int) {
		var out strings.Builder
		p, err := c.Exec(command, IO{In: strings.NewReader(in), Out: &out, Err: &out})
		nstest.Must(t, err)
		code := p.ExitCode()
		return strings.TrimSpace(out.String()), code
	}
	for _, x := range []struct {
		in   string
		does Command
		want string
		code int
	}{
		{"hello", shell("cat; exit 3"), "hello", 3},
		{"", shell("hostname; cat /tmp/file"), "web-0\nmine", 0},
		{"", shell("kill -9 $$"), "", 137},
		{"", Command{Args: []string{"pwd"}, Env: environment, Dir: "/made/here"}, "/made/here", 0},
	} {
		if got, code := exec(x.in, x.does); got != x.want || code != x.code {
			t.Errorf("%v: %q and code %d, want %q and %d", x.does.Args, got, code, x.want, x.code)
		}
	}
	if _, err := c.Exec(Command{Args: []string{"/etc/passwd"}}, IO{}); err == nil || !strings.Contains(err.Error(), "permission") {
		t.Errorf("a file that is no program: %v", err)
	}
	other, err := c.Exec(shell("sleep infinity"), IO{})
	nstest.Must(t, err)
	nstest.Must(t, c.Signal(syscall.SIGKILL))
	if code := other.ExitCode(); code != 137 {
		t.Errorf("with the container another program ends with code %d", code)
	}
	if _, err := c.Exec(shell("true"), IO{}); err == nil {
		<-c.Done()
		if _, err := c.Exec(shell("true"), IO{}); err == nil {
			t.Error("a program ran in a container that has ended")
		}
	}
	nstest.Must(t, c.Close())
}

func TestTerminal(t *testing.T) {
	pod := world(t)
	c, err := pod.Start(shell("sleep infinity"), Files{}, IO{})
	nstest.Must(t, err)
	in, keys := io.Pipe()
	screen, out := io.Pipe()
	p, err := c.Exec(shell("tty; read line; stty size; exit 5"), IO{In: in, Out: out, TTY: true})
	nstest.Must(t, err)
	nstest.Must(t, p.Resize(132, 43))
	text := make(chan string)
	go func() {
		data, _ := io.ReadAll(screen)
		text <- string(data)
	}()
	_, err = keys.Write([]byte("x\n"))
	nstest.Must(t, err)
	if code := p.ExitCode(); code != 5 {
		t.Errorf("exit code %d", code)
	}
	out.Close()
	if got := <-text; !strings.Contains(got, "/dev/pts/0") || !strings.Contains(got, "43 132") {
		t.Errorf("the terminal shows %q", got)
	}
	nstest.Must(t, c.Close())
}

func BenchmarkStart(b *testing.B) {
	ns := nstest.NewNS(b, "pod")
	pod, err := NewPod(ns, "web-0")
	nstest.Must(b, err)
	for b.Loop() {
		c, err := pod.Start(shell("exit"), Files{}, IO{})
		nstest.Must(b, err)
		nstest.Must(b, c.Close())
	}
	nstest.Must(b, pod.Close())
}
