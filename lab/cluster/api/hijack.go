// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
)

// upgrade lets serve take over the connection of a request. The context of serve ends when the connection does, from
// either side, or with the server: net/http knows nothing of a connection that has been taken over.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request)) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	serve(&hijacker{ResponseWriter: w, ctx: ctx, lost: cancel}, r.WithContext(ctx))
}

// hijacker is a ResponseWriter whose connection tells when it is lost.
type hijacker struct {
	http.ResponseWriter
	ctx  context.Context
	lost context.CancelFunc
}

// Unwrap is for http.ResponseController.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Flush implements http.Flusher.
func (h *hijacker) Flush() { _ = http.NewResponseController(h.ResponseWriter).Flush() }

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(h.ctx, func() { _ = conn.Close() })
	watched := &watchedConn{Conn: conn, lost: h.lost}
	read, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, nil, err // not possible: no more is asked for than there is
	}
	reader := io.MultiReader(bytes.NewReader(bytes.Clone(read)), watched)
	return watched, bufio.NewReadWriter(bufio.NewReader(reader), bufio.NewWriter(watched)), nil
}

// watchedConn tells when nothing more can be read.
type watchedConn struct {
	net.Conn
	lost context.CancelFunc
}

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.lost()
	}
	return n, err
}
