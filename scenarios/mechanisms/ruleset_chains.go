// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// prefix is an address as iptables-save prints it in a match.
func prefix(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

func oneSEPPerEndpoint(w spec.World, t table, family lab.Family) error {
	svc := svcChain(w, "KUBE-SVC-", "web")
	seps := 0
	for _, r := range t[svc] {
		if strings.HasPrefix(r.Target(), "KUBE-SEP-") {
			seps++
		}
	}
	var errs []error
	if seps != 2 {
		errs = append(errs, fmt.Errorf("%s leads to %d endpoint chains, not 2:\n%s", svc, seps, t.text(svc)))
	}
	for _, pod := range []string{"a1", "a2"} {
		endpoint := netip.AddrPortFrom(spec.Must(w.Host(pod)).Addr(family), 8080)
		sep := chainOf("KUBE-SEP-", w.Namespace()+"/web", "tcp", endpoint.String())
		_, jump := t.find(svc, "-j "+sep)
		_, own := t.find(sep, "-s "+prefix(endpoint.Addr()), "-j KUBE-MARK-MASQ")
		_, dnat := t.find(sep, "-p tcp", "-j DNAT", "--to-destination "+endpoint.String())
		errs = append(errs, jump, own, dnat)
		if n := len(t[sep]); n != 2 {
			errs = append(errs, fmt.Errorf("%s has %d rules, not 2", sep, n))
		}
	}
	return errors.Join(errs...)
}

// masqueradeMark accepts the three rules of today and the single one of older releases.
func masqueradeMark(_ spec.World, t table, _ lab.Family) error {
	_, sets := t.find("KUBE-MARK-MASQ", "-j MARK", "--set-xmark 0x4000/0x4000")
	rules := t["KUBE-POSTROUTING"]
	today := len(rules) == 3 &&
		rules[0].has("-m mark", "! --mark 0x4000/0x4000", "-j RETURN") &&
		rules[1].has("-j MARK", "--set-xmark 0x4000/0x0") &&
		rules[2].has("-j MASQUERADE")
	before := len(rules) == 1 && rules[0].has("-m mark", "--mark 0x4000/0x4000", "-j MASQUERADE")
	var masquerades error
	if !today && !before {
		masquerades = fmt.Errorf("KUBE-POSTROUTING does not return what is unmarked, clear the mark and masquerade:\n%s",
			t.text("KUBE-POSTROUTING"))
	}
	return errors.Join(sets, masquerades)
}

// offClusterMark accepts the rule in the Service's chain (today) or in KUBE-SERVICES (older releases).
func offClusterMark(w spec.World, t table, family lab.Family) error {
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
	parts := []string{"! -s " + clusterCIDR(w, family), "-d " + prefix(vip.Addr()), "--dport 80", "-j KUBE-MARK-MASQ"}
	_, today := t.find(svcChain(w, "KUBE-SVC-", "web"), parts...)
	if _, before := t.find("KUBE-SERVICES", parts...); before == nil {
		return nil
	}
	return today
}

func clusterCIDR(w spec.World, family lab.Family) string {
	for _, p := range w.Lab().ClusterCIDRs() {
		if lab.FamilyOf(p.Addr()) == family {
			return p.String()
		}
	}
	return ""
}

// localPolicyChains looks at n1, which has the pod, and at n3, which has none. Older releases call the chain KUBE-XLB
// and drop in it.
func localPolicyChains(ctx context.Context, w spec.World, family lab.Family) error {
	nodePort := spec.Must(w.Resolve(spec.NodePortAt("n1", "web", 80), family, "tcp"))
	ext, svc, svl := svcChain(w, "KUBE-EXT-", "web"), svcChain(w, "KUBE-SVC-", "web"), svcChain(w, "KUBE-SVL-", "web")
	var errs []error
	for _, node := range []string{"n1", "n3"} {
		nat, err := save(ctx, w, node, family, "nat")
		if err != nil {
			return err
		}
		want := func(chain string, parts ...string) {
			if _, err := nat.find(chain, parts...); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", node, err))
			}
		}
		want("KUBE-NODEPORTS", "--dport "+strconv.Itoa(int(nodePort.Port())), "-j "+ext)
		want(ext, "-s", "-j "+svc) // which range tells pods apart is a setting
		want(ext, "--src-type LOCAL", "-j KUBE-MARK-MASQ")
		want(ext, "--src-type LOCAL", "-j "+svc)
		if node == "n1" {
			want(ext, "-j "+svl)
			continue
		}
		if _, err := nat.find(ext, "-j "+svl); err == nil {
			errs = append(errs, fmt.Errorf("%s has no pod, but %s leads to %s", node, ext, svl))
		}
		filter, err := save(ctx, w, node, family, "filter")
		if err != nil {
			return err
		}
		_, err = filter.find("KUBE-EXTERNAL-SERVICES", "--dst-type LOCAL", "--dport "+strconv.Itoa(int(nodePort.Port())),
			"-j DROP")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func dropPath(ctx context.Context, w spec.World, family lab.Family) error {
	empty := spec.Must(w.Resolve(spec.ClusterIPOf("empty", 80), family, "tcp"))
	local := spec.Must(w.Resolve(spec.NodePortAt("n3", "local", 80), family, "tcp"))
	fenced := spec.Must(w.Resolve(spec.IngressOf("fenced", 80), family, "tcp"))
	t, err := save(ctx, w, "n3", family, "filter")
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range []struct {
		chain string
		parts []string
	}{
		{"KUBE-SERVICES", []string{"-d " + prefix(empty.Addr()), "--dport 80", "-j REJECT"}},
		{"KUBE-EXTERNAL-SERVICES", []string{"--dst-type LOCAL", "--dport " + strconv.Itoa(int(local.Port())), "-j DROP"}},
		{"KUBE-PROXY-FIREWALL", []string{"-d " + prefix(fenced.Addr()), "--dport 80", "-j DROP"}},
		{"INPUT", []string{"-j KUBE-PROXY-FIREWALL"}},
		{"FORWARD", []string{"-j KUBE-PROXY-FIREWALL"}},
		{"INPUT", []string{"-j KUBE-EXTERNAL-SERVICES"}},
		{"FORWARD", []string{"-j KUBE-SERVICES"}},
		{"OUTPUT", []string{"-j KUBE-SERVICES"}},
	} {
		_, err := t.find(c.chain, c.parts...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func forward(_ spec.World, t table, _ lab.Family) error {
	_, jump := t.find("FORWARD", "-j KUBE-FORWARD")
	rules := t["KUBE-FORWARD"]
	ok := len(rules) == 3 &&
		rules[0].has("--ctstate INVALID", "-j DROP") &&
		rules[1].has("-m mark", "--mark 0x4000/0x4000", "-j ACCEPT") &&
		rules[2].has("--ctstate RELATED,ESTABLISHED", "-j ACCEPT")
	if ok {
		return jump
	}
	return errors.Join(jump, fmt.Errorf("KUBE-FORWARD is not: drop INVALID, accept marked, accept established:\n%s",
		t.text("KUBE-FORWARD")))
}
