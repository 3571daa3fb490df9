// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"net/netip"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// Sample returns a Service port that uses most of what a mechanism can program, with one endpoint, and the range of
// pods. Its addresses are reserved for documentation (RFC 5737, RFC 3849).
func Sample(f lab.Family) (*model.Port, netip.Prefix) {
	vip, pods := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("198.51.100.0/24")
	if f == lab.V6 {
		vip, pods = netip.MustParseAddr("2001:db8::1"), netip.MustParsePrefix("2001:db8:1::/64")
	}
	endpoint := []model.Endpoint{{Addr: netip.AddrPortFrom(pods.Addr().Next(), 8080), OnNode: true}}
	return &model.Port{
		ID:              model.PortID{Namespace: "probe", Name: "probe", Protocol: "TCP"},
		Number:          80,
		ClusterIP:       vip,
		NodePort:        30080,
		LoadBalancerIPs: []netip.Addr{vip.Next()},
		SourceRanges:    []netip.Prefix{pods},
		ExternalLocal:   true,
		Affinity:        time.Minute,
		HealthCheckPort: 30081,
		Cluster:         endpoint,
		Local:           endpoint,
		Anywhere:        true,
	}, pods
}

// UnservedSample returns a port of the Sample's address that has no endpoint.
func UnservedSample(f lab.Family) *model.Port {
	served, _ := Sample(f)
	return &model.Port{
		ID: model.PortID{Namespace: "probe", Name: "unserved", Protocol: "UDP"}, Number: 53, ClusterIP: served.ClusterIP,
	}
}
