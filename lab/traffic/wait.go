// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// wait continues the exchange until the context ends. describe returns the Detail of a silence.
func (c *Conn) wait(ctx context.Context, describe func(waited time.Duration) string) Answer {
	start := time.Now()
	release := c.until(ctx)
	defer release()

	var a Answer
	err := error(nil)
	if !c.up || len(c.out) > 0 {
		err = c.raw.Write(func(uintptr) bool {
			a = c.attempt()
			return a.decided() || c.up && len(c.out) == 0
		})
	}
	if err == nil && !a.decided() {
		err = c.raw.Read(func(uintptr) bool { a = c.look(); return a.decided() })
	}
	switch {
	case a.decided():
		return a
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return Answer{Fault: fmt.Errorf("wait for an answer: %w", err)}
	case errors.Is(ctx.Err(), context.Canceled):
		return Answer{Fault: ctx.Err()}
	}
	return Answer{Outcome: Silence, Detail: describe(time.Since(start).Round(time.Millisecond))}
}

// until makes the poller give up when the context ends.
func (c *Conn) until(ctx context.Context) (release func()) {
	deadline, _ := ctx.Deadline()
	_ = c.file.SetDeadline(deadline) // a zero time is no deadline; fails only if the file is closed
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.file.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended // otherwise it would cut the next exchange short
		}
	}
}
