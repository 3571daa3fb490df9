// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/api"
)

// apiPort is where the API listens on the first node.
const apiPort = 6443

// publish serves the API on the first node, too, where pods find it through the Service default/kubernetes. It returns
// that of the primary IP family.
func (l *Lab) publish(ctx context.Context, c *cluster.Cluster) (*api.Endpoint, error) {
	node := c.Lab().Nodes()[0]
	var addrs []netip.AddrPort
	var first *api.Endpoint
	for _, f := range c.Lab().Stack().Families() {
		addr := netip.AddrPortFrom(node.Addr(f), apiPort)
		endpoint, err := l.api.Serve(ctx, node.NS, addr.String())
		if err != nil {
			return nil, err
		}
		first = cmp.Or(first, endpoint)
		addrs = append(addrs, addr)
	}
	return first, c.Store().PublishAPI(addrs...)
}
