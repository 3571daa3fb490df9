// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"fmt"
	"strings"
)

// isHTTP reports whether a line begins an HTTP GET request (RFC 9112 3): GET /path HTTP/1.1.
func isHTTP(line []byte) bool {
	return bytes.HasPrefix(line, []byte("GET ")) && bytes.Contains(line, []byte(" HTTP/1."))
}

// takeHTTP handles a line of a request's head, and answers after the last one, which is empty.
func (c *stream) takeHTTP(line []byte) {
	if c.http == "" {
		c.http = strings.Fields(string(line))[1]
		return
	}
	if len(bytes.TrimSpace(line)) > 0 {
		return
	}
	g := c.server.greet("tcp", c.peer, c.local, request{nonce: c.http}, 0)
	body := g.line()
	c.out = append(c.out, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		len(body))...)
	c.out = append(c.out, body...)
	c.http = ""
	c.flush()
}
