// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/viplab/viplab/lab/cluster/access"
	"github.com/viplab/viplab/lab/cluster/store"
)

// programs are containers whose commands run in the test's own namespaces. Ports of pods are those of this machine.
type programs struct{}

func (programs) Exec(ctx context.Context, pod store.Key, container string, command []string, s access.Streams) error {
	if s.TTY {
		size := <-s.Resize
		fmt.Fprintf(s.Out, "terminal of %d columns and %d lines\r\n", size.Width, size.Height)
		line, err := bufio.NewReader(s.In).ReadString('\n')
		fmt.Fprintf(s.Out, "%s in %s/%s: %s", command[0], pod, container, line)
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = s.Out, s.Err
	if s.In == nil {
		return ended(cmd.Run())
	}
	in, err := cmd.StdinPipe() // with cmd.Stdin, Run would wait for the end of the client's input
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(in, s.In)
		_ = in.Close()
	}()
	return ended(cmd.Run())
}

func ended(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return &access.ExitError{Code: exit.ExitCode()}
	}
	return err
}

func (programs) Attach(_ context.Context, pod store.Key, container string, s access.Streams) error {
	fmt.Fprintf(s.Out, "attached to %s of %s\n", container, pod)
	_, err := io.Copy(s.Out, s.In)
	return err
}

func (programs) Logs(ctx context.Context, _ store.Key, container string, o *corev1.PodLogOptions, w io.Writer) error {
	if o.Previous {
		return apierrors.NewBadRequest("previous terminated container not found")
	}
	if o.TailLines != nil {
		fmt.Fprintf(w, "the last %d of %s\n", *o.TailLines, container)
	}
	fmt.Fprintln(w, "said long ago")
	if o.Follow {
		<-ctx.Done()
	}
	return nil
}

func (programs) Dial(ctx context.Context, _ store.Key, port uint16) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

// solo returns a world with a running pod that has a port and two containers, and a Service of it.
func solo(t *testing.T, port int) *world {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "solo.yaml")
	err := os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata: {name: solo, labels: {app: solo}}
spec:
  containers: [{name: main, image: pause, ports: [{containerPort: %d, name: web}]}, {name: helper, image: pause}]
---
apiVersion: v1
kind: Service
metadata: {name: solo}
spec: {selector: {app: solo}, ports: [{name: http, port: 80, targetPort: web}]}
`, port), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w.run("apply", "-f", file)
	w.says("wait --for=condition=Ready pod/solo --timeout=300s", "pod/solo condition met")
	return w
}

func TestExec(t *testing.T) {
	for _, webSockets := range []string{"true", "false"} { // or SPDY
		t.Run("websockets="+webSockets, func(t *testing.T) {
			w := solo(t, 80)
			w.env = append(w.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+webSockets)
			testExec(w)
		})
	}
}

func testExec(w *world) {
	w.says("exec solo -- echo hello", "Defaulted container \"main\" out of: main, helper", "hello")
	w.says("exec solo -c helper -- sh -c exit", "")
	cmd := w.command("exec", "-i", "solo", "-c", "main", "--", "sh", "-c", "cat; echo bad >&2; exit 7")
	cmd.Stdin = strings.NewReader("what I say\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := w.cluster.Lab().Node("n1").NS.Run(cmd)
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || out.String() != "what I say\n" ||
		errs.String() != "bad\ncommand terminated with exit code 7\n" {
		w.Errorf("%v: %q, %q", err, &out, &errs)
	}
	if out, err := w.try("exec", "solo", "-c", "other", "--", "true"); err == nil ||
		!strings.Contains(out, "container other is not valid for pod solo") {
		w.Errorf("%v: %s", err, out)
	}
	if out, err := w.try("exec", "solo", "-c", "main", "--", "/no/such/program"); err == nil ||
		!strings.Contains(out, "/no/such/program: no such file") {
		w.Errorf("%v: %s", err, out)
	}
}

func TestExecTerminal(t *testing.T) {
	for _, webSockets := range []string{"true", "false"} { // or SPDY
		t.Run("websockets="+webSockets, func(t *testing.T) {
			w := solo(t, 80)
			w.env = append(w.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+webSockets)
			testExecTerminal(w)
		})
	}
}

func testExecTerminal(w *world) {
	line := fmt.Sprintf("stty rows 20 cols 70; exec %s exec -it solo -c main -- shell", program)
	cmd := exec.CommandContext(w.ctx, "script", "-qec", line, os.DevNull)
	cmd.Env = append(w.env, "PATH="+os.Getenv("PATH"), "SHELL=/bin/sh")
	in, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := w.cluster.Lab().Node("n1").NS.Start(cmd); err != nil {
		w.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	for _, want := range []string{"terminal of 70 columns and 20 lines", "shell in default/solo/main: hello"} {
		got, err := lines.ReadString('\n')
		if err != nil || strings.TrimSpace(got) != want {
			w.Fatalf("%v: %q, want %q", err, got, want)
		}
		fmt.Fprint(in, "hello\n")
	}
	_, _ = io.Copy(io.Discard, lines)
	if err := cmd.Wait(); err != nil {
		w.Error(err)
	}
}

// TestExecLost kills the client of a command that neither reads nor writes: the command ends, too.
func TestExecLost(t *testing.T) {
	for _, webSockets := range []string{"true", "false"} { // or SPDY
		t.Run("websockets="+webSockets, func(t *testing.T) {
			w := solo(t, 80)
			w.env = append(w.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+webSockets)
			testExecLost(w)
		})
	}
}

func testExecLost(w *world) {
	fifo := filepath.Join(w.TempDir(), "fifo")
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		w.Fatalf("%v: %s", err, out)
	}
	cmd := w.command("exec", "solo", "-c", "main", "--", "sh", "-c", "exec sleep inf >"+fifo)
	if err := w.cluster.Lab().Node("n1").NS.Start(cmd); err != nil {
		w.Fatal(err)
	}
	held, err := os.Open(fifo) // waits until the command runs
	if err != nil {
		w.Fatal(err)
	}
	defer held.Close()
	if err := cmd.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := io.ReadAll(held); err != nil { // ends with the command
		w.Error(err)
	}
}

func TestAttachAndLogs(t *testing.T) {
	w := solo(t, 80)
	cmd := w.command("attach", "-i", "solo", "-c", "helper")
	cmd.Stdin = strings.NewReader("what I say\n")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := w.cluster.Lab().Node("n1").NS.Run(cmd); err != nil ||
		!strings.HasSuffix(out.String(), "attached to helper of default/solo\nwhat I say\n") {
		t.Errorf("%v: %s", err, &out)
	}
	w.says("logs solo -c helper --tail=2", "the last 2 of helper", "said long ago")
	if out, err := w.try("logs", "solo", "-c", "main", "--previous"); err == nil ||
		!strings.Contains(out, "previous terminated container not found") {
		t.Errorf("%v: %s", err, out)
	}
	follow := w.command("logs", "-f", "solo", "-c", "main")
	stdout, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.Lab().Node("n1").NS.Start(follow); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "said long ago\n" {
		t.Errorf("%v: %q", err, line)
	}
	if err := follow.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = follow.Wait()
}

func TestCopy(t *testing.T) {
	w := solo(t, 80)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a"), []byte("the text"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run("cp", filepath.Join(folder, "a"), "solo:"+filepath.Join(folder, "b"), "-c", "main")
	w.contains("cp solo:" + filepath.Join(folder, "b") + " " + filepath.Join(folder, "c") + " -c main")
	if text, err := os.ReadFile(filepath.Join(folder, "c")); string(text) != "the text" {
		t.Errorf("%v: %s", err, text)
	}
}

func TestPortForwardAndProxy(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	defer page.Close()
	port := int(netip.MustParseAddrPort(page.Listener.Addr().String()).Port())
	w := solo(t, port)
	forward := w.command("port-forward", "service/solo", ":80")
	stdout, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	n1 := w.cluster.Lab().Node("n1").NS
	if err := n1.Start(forward); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n') // Forwarding from 127.0.0.1:PORT -> TARGET
	words := strings.Fields(line)
	if err != nil || len(words) < 3 {
		t.Fatalf("%v: %q", err, line)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return n1.Dial(ctx, network, netip.AddrPort{}, netip.MustParseAddrPort(words[2]))
		},
	}}
	for range 3 {
		resp, err := client.Get("http://pod/path")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if string(text) != "GET /path " {
			t.Errorf("%v: %s", err, text)
		}
	}
	_ = forward.Process.Kill()
	_ = forward.Wait()
	for _, target := range []string{"pods/solo", "services/solo:http", "services/solo:80",
		fmt.Sprintf("pods/http:solo:%d", port)} {
		w.says("get --raw /api/v1/namespaces/default/"+target+"/proxy/a/b/?q=1", "GET /a/b/?q=1")
	}
	if out, err := w.try("get", "--raw", "/api/v1/namespaces/default/services/solo:none/proxy/"); err == nil ||
		!strings.Contains(out, `no endpoints available for service "solo"`) {
		t.Errorf("%v: %s", err, out)
	}
}
