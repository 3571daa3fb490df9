// SPDX-License-Identifier: Apache-2.0

// Package access is how clients of the API reach the containers of running pods: what a kubelet offers, and what the
// API server passes on.
package access

import (
	"context"
	"fmt"
	"io"
	"net"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Containers gives clients access to the containers of running pods. An empty container name means the pod's default
// container: see DefaultContainer. All methods may be called concurrently. They return an error of
// k8s.io/apimachinery/pkg/api/errors to choose the HTTP status of the answer; any other is an internal error.
type Containers interface {
	// Exec runs a command in a container and returns when it has ended: nil for exit code 0, an *ExitError for another.
	// It ends the command when ctx ends.
	Exec(ctx context.Context, pod store.Key, container string, command []string, s Streams) error
	// Attach connects the streams to the container's first process until it ends or ctx does.
	Attach(ctx context.Context, pod store.Key, container string, s Streams) error
	// Logs writes what the container has printed, as the options say: Follow, Previous, TailLines, SinceSeconds,
	// SinceTime, Timestamps and LimitBytes. With Follow it returns when the container has ended or ctx does.
	Logs(ctx context.Context, pod store.Key, container string, o *corev1.PodLogOptions, w io.Writer) error
	// Dial connects to a TCP port of the pod from inside its network namespace.
	Dial(ctx context.Context, pod store.Key, port uint16) (net.Conn, error)
}

// Streams are the standard streams of a command. A nil stream is not connected. With TTY, Err is nil: a terminal has
// one output.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	TTY      bool
	// Resize yields the size of the client's terminal, at first and after every change. It is closed with the
	// connection, and nil without TTY.
	Resize <-chan TerminalSize
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Width, Height uint16 }

// ExitError reports that a command has ended with another exit code than 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// defaultContainerAnnotation names the container of a pod that kubectl means if none is given.
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// DefaultContainer returns the name of the container that clients mean if they name none: the one of the annotation
// kubectl.kubernetes.io/default-container, else the pod's first. It is empty for a pod without containers.
func DefaultContainer(p *corev1.Pod) string {
	if name := p.Annotations[defaultContainerAnnotation]; name != "" {
		return name
	}
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return p.Spec.Containers[0].Name
}
