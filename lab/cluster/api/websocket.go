// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/viplab/viplab/lab/cluster/access"
)

// serveWebSocket serves a command through version 5 of the channel protocol, the first choice of Kubernetes' clients.
// remotecommand, made for kubelets, knows the older ones: real API servers translate between the two.
func serveWebSocket(w http.ResponseWriter, r *http.Request, o *remotecommand.Options, run func(context.Context,
	access.Streams) error) {
	kind := func(wanted bool, t wsstream.ChannelType) wsstream.ChannelType {
		if wanted {
			return t
		}
		return wsstream.IgnoreChannel
	}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		remotecommand.StreamProtocolV5Name: {Binary: true, Channels: []wsstream.ChannelType{
			remotecommand.StreamStdIn:  kind(o.Stdin, wsstream.ReadChannel),
			remotecommand.StreamStdOut: kind(o.Stdout, wsstream.WriteChannel),
			remotecommand.StreamStdErr: kind(o.Stderr, wsstream.WriteChannel),
			remotecommand.StreamErr:    wsstream.WriteChannel,
			remotecommand.StreamResize: kind(o.TTY, wsstream.ReadChannel),
		}},
	})
	conn.SetIdleTimeout(idleTimeout)
	_, channels, err := conn.Open(w, r)
	if err != nil {
		return // Open has answered
	}
	defer func() { _ = conn.Close() }()
	streams := access.Streams{TTY: o.TTY}
	if o.Stdin {
		streams.In = channels[remotecommand.StreamStdIn]
	}
	if o.Stdout {
		streams.Out = channels[remotecommand.StreamStdOut]
	}
	if o.Stderr {
		streams.Err = channels[remotecommand.StreamStdErr]
	}
	if o.TTY {
		streams.Resize = decodeSizes(r.Context(), channels[remotecommand.StreamResize])
	}
	text, err := json.Marshal(resultOf(run(r.Context(), streams)))
	if err != nil {
		panic(err) // a Status
	}
	_, _ = channels[remotecommand.StreamErr].Write(text) // a client that is gone needs no answer
}

// decodeSizes yields the sizes that a client sends until it is gone.
func decodeSizes(ctx context.Context, from io.Reader) <-chan access.TerminalSize {
	out := make(chan access.TerminalSize)
	go func() {
		defer close(out)
		for d := json.NewDecoder(from); ; {
			var size access.TerminalSize
			if d.Decode(&size) != nil {
				return
			}
			select {
			case out <- size:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// resultOf returns how a command ended in the form that clients expect.
func resultOf(err error) *metav1.Status {
	exit := (*access.ExitError)(nil)
	switch {
	case err == nil:
		return &metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return &metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Message: "command terminated with non-zero exit code: " + exit.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(exit.Code)},
			}},
		}
	default:
		status := apierrors.NewInternalError(err).Status()
		return &status
	}
}
