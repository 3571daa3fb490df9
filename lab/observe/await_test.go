// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "github.com/viplab/viplab/internal/lab/nstest"
)

func TestAwait(t *testing.T) {
	wrong := errors.New("still wrong")
	t.Run("at once", func(t *testing.T) {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		Must(t, Await(ended, nil, func(context.Context) error { return nil }))
	})
	t.Run("on an event", func(t *testing.T) {
		events := make(chan struct{})
		tries := 0
		go func() {
			for range 3 {
				events <- struct{}{}
			}
		}()
		Must(t, Await(Within(t), events, func(context.Context) error {
			if tries++; tries < 4 {
				return wrong
			}
			return nil
		}))
	})
	t.Run("by the clock, and when the events end", func(t *testing.T) {
		closed := make(chan struct{})
		close(closed)
		for _, events := range []chan struct{}{nil, closed} {
			tries := 0
			Must(t, Await(Within(t), events, func(context.Context) error {
				if tries++; tries < 4 {
					return wrong
				}
				return nil
			}))
		}
	})
	t.Run("in vain", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		err := Await(ctx, nil, func(context.Context) error { return wrong })
		if !errors.Is(err, wrong) || !strings.HasPrefix(err.Error(), "still wrong (") ||
			!strings.Contains(err.Error(), " tries in ") {
			t.Error(err)
		}
	})
	t.Run("cut short", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		tries := 0
		err := Await(ctx, nil, func(ctx context.Context) error {
			if tries++; tries < 3 {
				return wrong
			}
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, wrong) || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "(3 tries in ") {
			t.Error(err)
		}
	})
}

func TestRulesetChanges(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(Within(t))
	ticks, err := RulesetChanges(ctx, w.router)
	Must(t, err)
	for range 3 {
		NFT(t, w.router, "table inet x { chain y { counter; }; }")
		<-ticks
	}
	select {
	case <-ticks:
		t.Error("a tick without a change")
	default:
	}
	NFT(t, w.router, "delete table inet x")
	<-ticks
	cancel()
	if _, open := <-ticks; open {
		t.Error("a tick after the end")
	}
}

func TestRulesetGeneration(t *testing.T) {
	w := newWorld(t)
	generation := func() uint32 {
		n, err := RulesetGeneration(w.router)
		Must(t, err)
		return n
	}
	before := generation()
	if now := generation(); now != before {
		t.Errorf("without a change: %d after %d", now, before)
	}
	NFT(t, w.router, "table inet x { }")
	if now := generation(); now == before {
		t.Errorf("after a change: still %d", now)
	}
}

func TestChainChanges(t *testing.T) {
	w := newWorld(t)
	ctx := Within(t)
	ticks, err := ChainChanges(ctx, w.router, unix.NFPROTO_INET, "y")
	Must(t, err)
	all, err := RulesetChanges(ctx, w.router)
	Must(t, err)
	for _, elsewhere := range []string{
		"table inet x { chain y { }; chain z { counter; }; }", // a chain without a rule
		"table ip x { chain y { counter; }; }",
		"add rule inet x z counter",
	} {
		NFT(t, w.router, elsewhere)
		<-all
	}
	select {
	case <-ticks:
		t.Error("a tick for a rule of another chain")
	default:
	}
	for _, here := range []string{"add rule inet x y counter", "flush chain inet x y"} {
		NFT(t, w.router, here)
		<-ticks
	}
}
