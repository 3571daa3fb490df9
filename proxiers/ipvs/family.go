// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/proxiers/model"
)

// drainEvery is the interval at which retired backends are checked, and so the longest time that one stays after its
// last connection.
const drainEvery = time.Second

// family is the mechanism of one IP family of a node.
type family struct {
	primary netip.Addr
	log     *slog.Logger

	mu     sync.Mutex // guards the rest, which Program, Remove and the timer use
	kernel *kernel
	want   *desired
	// known is set if the field kernel matches the kernel's state.
	known bool
	// timer is set while there are retired backends.
	timer *time.Timer
}

func (f *family) Program(ctx context.Context, state *model.State, at kit.Place) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Loopback addresses do not count, because IPVS does not translate packets to them.
	place := place{own: kit.WithoutLoopback(at.Local), nodePorts: at.ReachableNodePorts(), primary: f.primary}
	if f.known && state == f.want.State && place.equal(f.want.at) {
		_, err := f.kernel.clients.Discard()
		return err
	}
	if f.known {
		intact, err := f.kernel.rulesIntact(ctx, f.want)
		if err == nil && intact {
			intact, err = f.kernel.sampleIntact()
		}
		if err != nil {
			return err
		}
		f.known = intact // a program that deleted something may have deleted more
	}
	f.want.advance(state, place)
	if !f.known {
		if err := f.kernel.load(f.want); err != nil {
			return err
		}
		if err := f.kernel.delivery.add(); err != nil {
			return err
		}
	}
	wasKnown := f.known
	f.known = false
	if err := f.kernel.clients.Prepare(state.Services...); err != nil {
		return err
	}
	if !wasKnown {
		if err := f.kernel.writeRules(ctx, f.want.allTranslations()); err != nil {
			return err
		}
		f.want.touchAll(f.kernel)
	}
	if err := f.kernel.commit(ctx, f.want); err != nil {
		return err
	}
	if _, err := f.kernel.clients.Discard(); err != nil {
		return err
	}
	f.known = true
	f.drainLater()
	return nil
}

// drainLater schedules a check of retired backends, if there are any.
func (f *family) drainLater() {
	if f.timer == nil && len(f.kernel.servers.draining) > 0 {
		f.timer = time.AfterFunc(drainEvery, f.drain)
	}
}

func (f *family) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer == nil {
		return // removed in the meantime
	}
	f.timer = nil
	if !f.known {
		return // the next Program finds the retired backends
	}
	if err := f.kernel.servers.drain(); err != nil {
		f.known = false
		f.log.Warn(err.Error())
		return
	}
	f.drainLater()
}

func (f *family) Remove(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopDraining()
	f.known, f.want = false, newDesired(f.want.translator)
	return f.kernel.remove(ctx)
}

func (f *family) stopDraining() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

func (f *family) Release() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopDraining()
	return f.kernel.close()
}

func (f *family) Dump(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := f.kernel.dump(ctx, f.want)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	return text, nil
}
