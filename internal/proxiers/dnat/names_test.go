// SPDX-License-Identifier: Apache-2.0

package dnat

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/proxiers/model"
)

// TestChainNames holds the names that kube-proxy gives, from listings of real clusters and its documentation.
func TestChainNames(t *testing.T) {
	port := func(namespace, name, port string, proto corev1.Protocol) model.PortID {
		return model.PortID{Namespace: namespace, Name: name, Port: port, Protocol: proto}
	}
	for _, c := range []struct {
		id       model.PortID
		endpoint string
		want     string
	}{
		{port("default", "kubernetes", "https", "TCP"), "", "NPX46M4PTMTKRN6Y"},
		{port("kube-system", "kube-dns", "dns", "UDP"), "", "TCOU7JCQXEZGVUNU"},
		{port("kube-system", "kube-dns", "dns-tcp", "TCP"), "", "ERIFXISQEP7F7OF4"},
		{port("default", "webapp", "", "TCP"), "", "2IRACUALRELARSND"},
		{port("default", "webapp", "", "TCP"), "10.244.120.102:80", "AO6KYGU752IZFEZ4"},
		{port("default", "webapp", "", "TCP"), "10.244.120.103:80", "PJFBSHHDX4VZAOXM"},
		{port("ns1", "svc1", "p80", "TCP"), "", "XPGD46QRK7WJZT7O"},
		{port("ns1", "svc1", "p80", "TCP"), "10.180.0.1:80", "SXIVWICOYRO3J4NJ"},
	} {
		if got := hash(c.id, c.endpoint); got != c.want {
			t.Errorf("%v %s: got %s, want %s", c.id, c.endpoint, got, c.want)
		}
	}
	if n := len(EndpointChain(model.PortID{Namespace: "ns", Name: "svc", Protocol: "SCTP"},
		netip.MustParseAddrPort("[fd00::1]:80"))); n > 28 {
		t.Errorf("a chain's name has %d bytes, and the kernel takes 28", n)
	}
}

// TestSetNamesFit: the kernel refuses names of more than 31 bytes.
func TestSetNamesFit(t *testing.T) {
	id := model.PortID{Namespace: "test", Name: "web", Port: "http", Protocol: "TCP"}
	for _, endpoint := range []string{"10.244.0.1:8080", "[fd00::1]:8080"} {
		if name := ClientSet(id, netip.MustParseAddrPort(endpoint)) + nextSuffix; len(name) > 31 {
			t.Errorf("%s has %d bytes", name, len(name))
		}
	}
}

// TestTablesOfSets: few endpoints get large hash tables, and the tables of many stay within the limit.
func TestTablesOfSets(t *testing.T) {
	for sets, want := range map[int]int{
		0: 16384, 1: 16384, 256: 16384, 257: 8192, 5000: 512, 1 << 15: 128, 1 << 20: 128,
	} {
		if got := buckets(sets); got != want {
			t.Errorf("%d sets: got %d buckets each, want %d", sets, got, want)
		}
	}
}
