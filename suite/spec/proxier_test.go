// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// For leaves out the settings of options that a program lacks.
func TestSettingsOfOptions(t *testing.T) {
	all := ProxyConfig{
		MasqueradeAll: true, NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		NodePortsOnPrimary: true, NoExternalIPs: true, NoLocalhostNodePorts: true,
		IPVSScheduler: "sh", IPVSStrictARP: true, MasqueradeBit: 5,
		IPVSExcludeCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, IPVSTimeouts: IPVSTimeouts{TCP: 1},
		MetricsAddress: netip.MustParseAddrPort("127.0.0.1:9"), HealthzAddress: netip.MustParseAddrPort("127.0.0.1:8"),
		BindHardFail: true, ConfigFile: true, SyncPeriod: time.Second, MinSyncPeriod: new(time.Duration),
		Conntrack: ConntrackConfig{TCPEstablished: 1, TCPCloseWait: 1, UDP: 1, UDPStream: 1, TCPBeLiberal: true},
	}
	for field, value := range reflect.ValueOf(all).Fields() {
		if value.IsZero() {
			t.Errorf("the test has no value for %s", field.Name)
		}
	}
	always := []string{"NoLocalhostNodePorts", "IPVSScheduler", "IPVSStrictARP", "IPVSExcludeCIDRs", "IPVSTimeouts"}
	for _, c := range []struct {
		offered FeatureSet
		want    []string // fields that are not zero
	}{
		{Features(), append(slices.Clone(always), "SyncPeriod")},
		{Features(MasqueradeAll, Metrics), slices.Concat([]string{"MasqueradeAll"}, always,
			[]string{"MetricsAddress", "SyncPeriod"})},
		{Features(NodePortAddresses, PrimaryNodePorts, ConntrackTimeouts), slices.Concat([]string{"NodePortAddresses",
			"NodePortsOnPrimary"}, always, []string{"Conntrack", "SyncPeriod"})},
	} {
		var got []string
		for field, value := range reflect.ValueOf(all.For(c.offered)).Fields() {
			if !value.IsZero() {
				got = append(got, field.Name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.offered, got, c.want)
		}
	}
	if got := all.For(Features(AllFeatures()...)); !reflect.DeepEqual(got, all) {
		t.Errorf("with all features: %+v", got)
	}
	tcp := ConntrackConfig{TCPEstablished: 1, TCPCloseWait: 1}
	if got := all.For(Features(ConntrackTimeouts)).Conntrack; got != tcp {
		t.Errorf("timeouts of TCP alone: %+v", got)
	}
}
