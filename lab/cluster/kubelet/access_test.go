// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab/cluster/access"
)

func TestAttach(t *testing.T) {
	w := newWorld(t)
	w.pod("echo", "{restartPolicy: Never, containers: [{name: c, image: busybox, stdin: true, stdinOnce: true, command: [sh, -c, 'cat; exit 6']}]}")
	w.awaitReady("echo")
	in, typed := io.Pipe()
	seen, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- w.Containers().Attach(w.ctx, key("echo"), "", access.Streams{In: in, Out: out}) }()
	_, err := io.WriteString(typed, "hello\n")
	nstest.Must(t, err)
	if line, err := bufio.NewReader(seen).ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	nstest.Must(t, typed.Close())
	if err := <-ended; !isExit(err, 6) {
		t.Errorf("the end: %v", err)
	}
	w.awaitPhase("echo", corev1.PodFailed)
}

func TestLogs(t *testing.T) {
	w := newWorld(t)
	w.run("printer", "printf '1\\n2\\n3\\n4'", "")
	for want, o := range map[string]corev1.PodLogOptions{
		"1\n2\n3\n4": {Follow: true},
		"3\n4":       {TailLines: ptr.To[int64](2)},
		"":           {TailLines: ptr.To[int64](0)},
		"1\n2":       {LimitBytes: ptr.To[int64](3)},
	} {
		if got := w.logs("printer", "", o); got != want {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
	if got := w.logs("printer", "", corev1.PodLogOptions{Timestamps: true, LimitBytes: ptr.To[int64](3)}); !strings.HasPrefix(got, "20") {
		t.Errorf("with times: %q", got)
	}
	err := w.Containers().Logs(w.ctx, key("printer"), "", &corev1.PodLogOptions{Previous: true}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "previous terminated container") {
		t.Errorf("the log before the first run: %v", err)
	}
}

// The health service of gRPC answers over HTTP/2: a message of one field, and the status in a trailer.
func TestGRPCProbe(t *testing.T) {
	w := newWorld(t)
	w.pod("health", "{containers: [{name: c, image: pause, readinessProbe: {grpc: {port: 9000, service: shop}, periodSeconds: 1, timeoutSeconds: 30}}]}")
	w.await("health", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	l, err := w.Lab().Pod("default/health").Listen(w.ctx, "tcp", ":9000")
	nstest.Must(t, err)
	asked := make(chan string, 100)
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- r.URL.Path + " " + string(body[7:])
		rw.Header().Set("Trailer", "Grpc-Status")
		rw.Header().Set("Content-Type", "application/grpc")
		_, _ = rw.Write([]byte{0, 0, 0, 0, 2, 8, 1})
		rw.Header().Set("Grpc-Status", "0")
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(l)
	defer server.Close()
	w.awaitReady("health")
	if got := <-asked; got != "/grpc.health.v1.Health/Check shop" {
		t.Errorf("the probe asks %q", got)
	}
}
