// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"net/netip"

	"github.com/viplab/viplab/lab/cluster"
)

// apiPort is where the API listens on the first node.
const apiPort = 6443

// publish serves the API on the first node, too, where pods find it through the Service default/kubernetes.
func (l *Lab) publish(ctx context.Context, c *cluster.Cluster) error {
	node := c.Lab().Nodes()[0]
	var addrs []netip.AddrPort
	for _, f := range c.Lab().Stack().Families() {
		addr := netip.AddrPortFrom(node.Addr(f), apiPort)
		if _, err := l.api.Serve(ctx, node.NS, addr.String()); err != nil {
			return err
		}
		addrs = append(addrs, addr)
	}
	return c.Store().PublishAPI(addrs...)
}
