// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	"k8s.io/utils/exec"

	"github.com/viplab/viplab/lab/cluster/access"
	"github.com/viplab/viplab/lab/cluster/store"
)

// idleTimeout is how long a stream may be silent, as long as with a kubelet (--streaming-connection-idle-timeout).
const idleTimeout = 4 * time.Hour

var errNoContainers = &statusError{code: http.StatusNotImplemented, reason: "NotImplemented",
	message: "this cluster gives no access to the containers of pods: they are echo servers without a process"}

// podOf returns the pod of a request for a subresource that reaches into it.
func (s *Server) podOf(r *request) (*corev1.Pod, error) {
	if s.containers == nil {
		return nil, errNoContainers
	}
	pod, ok := store.Get[*corev1.Pod](s.store, r.key.Namespace, r.key.Name)
	if !ok {
		return nil, notFound(r.resource.gr(), r.key.Name)
	}
	return pod, nil
}

// containerOf returns the container that a request names, or the default one.
func containerOf(r *request, pod *corev1.Pod) (string, error) {
	name := r.URL.Query().Get("container")
	if name == "" {
		return access.DefaultContainer(pod), nil
	}
	var known []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		known = append(known, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		known = append(known, c.Name)
	}
	if !slices.Contains(known, name) {
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s (it has: %s)",
			name, pod.Name, strings.Join(known, ", ")))
	}
	return name, nil
}

// scheduled returns the pod of a request, unless it has no node yet.
func (s *Server) scheduled(r *request) (*corev1.Pod, error) {
	pod, err := s.podOf(r)
	if err == nil && pod.Spec.NodeName == "" {
		err = apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return pod, err
}

// exec serves the subresources exec and attach: the streams of a command, or of the container's first process.
func (s *Server) execute(w http.ResponseWriter, r *request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return notAllowed(r)
	}
	pod, err := s.scheduled(r)
	if err != nil {
		return err
	}
	container, err := containerOf(r, pod)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	wants := func(name string) bool { return q.Get(name) == "true" || q.Get(name) == "1" }
	o := &remotecommand.Options{Stdin: wants("stdin"), Stdout: wants("stdout"), TTY: wants("tty")}
	o.Stderr = wants("stderr") && !o.TTY
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return apierrors.NewBadRequest("you must specify at least 1 of stdin, stdout, stderr")
	}
	key, line := store.KeyOf(pod), q["command"]
	run := func(ctx context.Context, streams access.Streams) error {
		if r.sub == "attach" {
			return s.containers.Attach(ctx, key, container, streams)
		}
		return s.containers.Exec(ctx, key, container, line, streams)
	}
	if r.sub == "exec" && len(line) == 0 {
		return apierrors.NewBadRequest("you must specify a command for the container")
	}
	s.upgrade(w, r.Request, func(w http.ResponseWriter, req *http.Request) {
		if wsstream.IsWebSocketRequestWithStreamCloseProtocol(req) {
			serveWebSocket(w, req, o, run)
			return
		}
		remotecommand.ServeExec(w, req, command(run), pod.Name, string(pod.UID), container, line, o, idleTimeout,
			remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	})
	return nil
}

// command makes a remotecommand.Executor of a function.
type command func(context.Context, access.Streams) error

// ExecInContainer implements remotecommand.Executor.
func (run command) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader,
	out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	s := access.Streams{In: in, Out: out, Err: errs, TTY: tty}
	if tty && resize != nil {
		s.Resize = sizesOf(ctx, resize)
	}
	err := run(ctx, s)
	if exit := (*access.ExitError)(nil); errors.As(err, &exit) {
		return exec.CodeExitError{Err: exit, Code: exit.Code}
	}
	return err
}

// sizesOf passes sizes on until their channel is closed.
func sizesOf(ctx context.Context, sizes <-chan remotecommand.TerminalSize) <-chan access.TerminalSize {
	out := make(chan access.TerminalSize)
	go func() {
		defer close(out)
		for size := range sizes {
			select {
			case out <- access.TerminalSize(size):
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// portForward serves the subresource portforward.
func (s *Server) portForward(w http.ResponseWriter, r *request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		return notAllowed(r)
	}
	pod, err := s.scheduled(r)
	if err != nil {
		return err
	}
	ports, err := portforward.NewV4Options(r.Request)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	s.upgrade(w, r.Request, func(w http.ResponseWriter, req *http.Request) {
		do := forwarder{s.containers, store.KeyOf(pod), req.Context()}
		portforward.ServePortForward(w, req, do, pod.Name, string(pod.UID), ports,
			idleTimeout, remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
	})
	return nil
}

// forwarder connects streams with ports of a pod until ctx ends; portforward gives it no context of the connection.
type forwarder struct {
	containers access.Containers
	pod        store.Key
	ctx        context.Context
}

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := f.containers.Dial(f.ctx, f.pod, uint16(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(f.ctx, func() { _ = conn.Close() })
	defer stop()
	answered := make(chan error, 1)
	go func() {
		_, err := io.Copy(stream, conn)
		answered <- err
	}()
	go func() {
		_, _ = io.Copy(conn, stream) // the answer decides how it ended
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	if err := <-answered; err != nil && f.ctx.Err() == nil {
		return err
	}
	return nil
}
