// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"testing"

	"github.com/viplab/viplab/suite/spec"
)

// Names and rules as published in kube-proxy's own tests and in captures of real nodes.
func TestChainNamesAreKubeProxys(t *testing.T) {
	if got := chainOf("KUBE-SVC-", "ns1/svc1:p80", "tcp"); got != "KUBE-SVC-XPGD46QRK7WJZT7O" {
		t.Errorf("Service chain: %s", got)
	}
	if got := chainOf("KUBE-SEP-", "ns1/svc1:p80", "tcp", "10.180.0.1:80"); got != "KUBE-SEP-SXIVWICOYRO3J4NJ" {
		t.Errorf("endpoint chain: %s", got)
	}
}

func TestParseSave(t *testing.T) {
	tab := parseSave(`# Generated
*nat
:PREROUTING ACCEPT [5:300]
:KUBE-SERVICES - [0:0]
[7:420] -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
[0:0] -A KUBE-SVC-X -m comment --comment ns1/svc1 -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-A
COMMIT
`)
	if r := tab["PREROUTING"][0]; r.Rule != "-j KUBE-SERVICES" || r.packets != 7 || r.Target() != "KUBE-SERVICES" {
		t.Errorf("first rule: %+v", r)
	}
	r := tab["KUBE-SVC-X"][0]
	if r.Target() != "KUBE-SEP-A" || r.probability() < 0.3333 || r.probability() > 0.3334 || r.has("--comment") {
		t.Errorf("second rule: %+v, probability %v", r, r.probability())
	}
	if _, err := tab.find("KUBE-SVC-X", "-j KUBE-SEP-B"); err == nil {
		t.Error("a rule that is not there is found")
	}
	if spec.Catch(func() error { parseSave("[x:y] -A A -j B"); return nil }) == nil {
		t.Error("bad counters are accepted")
	}
}
