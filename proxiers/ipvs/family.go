// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/proxiers/keeper"
	"github.com/viplab/viplab/proxiers/model"
)

// drainEvery is how long a retired backend may stay after its last connection.
const drainEvery = time.Second

// family is the mechanism of one IP family of a node.
type family struct {
	primary netip.Addr
	log     *slog.Logger

	mu     sync.Mutex // held by whoever touches the rest: Program, Remove, and the timer
	kernel *kernel
	want   *desired
	// known says that the kernel holds what kernel says it does.
	known bool
	// timer is set while there are retired backends.
	timer *time.Timer
}

// Program implements keeper.Mechanism.
func (f *family) Program(ctx context.Context, state *model.State, at keeper.Place) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	place := f.place(at)
	if f.known && state == f.want.state && place.equal(f.want.at) {
		return nil
	}
	if f.known {
		stand, err := f.kernel.rulesStand(ctx)
		if err != nil {
			return err
		}
		f.known = stand // who has deleted rules may have deleted more
	}
	t := f.want.advance(state, place)
	if !f.known {
		if err := f.kernel.load(f.want); err != nil {
			return err
		}
		if err := f.kernel.writeRules(ctx); err != nil {
			return err
		}
		t = f.want.everything(f.kernel)
	}
	f.known = false
	if err := f.kernel.commit(f.want, t); err != nil {
		return err
	}
	f.known = true
	f.drainLater()
	return nil
}

// place is what of the node Services depend on.
func (f *family) place(at keeper.Place) place {
	nodePorts := at.NodePorts
	if nodePorts == nil {
		nodePorts = at.Local
	}
	return place{own: withoutLoopback(at.Local), nodePorts: withoutLoopback(nodePorts), primary: f.primary}
}

// withoutLoopback leaves out what IPVS cannot serve: packets to a loopback address are not translated.
func withoutLoopback(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), netip.Addr.IsLoopback)
}

// drainLater looks at retired backends in a while, if there are any.
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

// Remove implements keeper.Mechanism.
func (f *family) Remove(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	f.known, f.want = false, newDesired()
	return f.kernel.remove(ctx)
}

// Dump implements keeper.Mechanism.
func (f *family) Dump(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := f.kernel.dump(ctx, f.want)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	return text, nil
}
