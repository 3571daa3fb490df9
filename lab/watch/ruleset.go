package watch

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// RulesetChanges ticks after every transaction on the nftables ruleset of a namespace, iptables-nft included, until the
// context ends; then it closes the channel. Transactions that come faster than they are taken make one tick.
// iptables-legacy has no such events.
func RulesetChanges(ctx context.Context, ns *netns.NS) (<-chan struct{}, error) {
	conn, err := netfilter.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return nil, fmt.Errorf("%s: open nftables: %w", ns.Name(), err)
	}
	err = conn.SetReadBuffer(eventBuffer)
	if err == nil {
		err = conn.JoinGroups([]netfilter.NetlinkGroup{netfilter.GroupNFTables})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: listen for ruleset changes: %w", ns.Name(), err), conn.Close())
	}
	ticks := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		defer close(ticks)
		defer stop()
		for {
			messages, err := conn.Receive()
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, unix.ENOBUFS): // events were lost, and one of them may have been it
			case err != nil:
				_ = conn.Close()
				return
			case !hasNewGeneration(messages):
				continue
			}
			select {
			case ticks <- struct{}{}:
			default:
			}
		}
	}()
	return ticks, nil
}

// hasNewGeneration looks for NFT_MSG_NEWGEN, the last message of every transaction.
func hasNewGeneration(messages []netlink.Message) bool {
	for _, m := range messages {
		if m.Header.Type == netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN) {
			return true
		}
	}
	return false
}
