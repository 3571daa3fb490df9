// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// prefix is an address as iptables-save prints it in a match.
func prefix(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

func oneSEPPerEndpoint(w spec.World, t table, family lab.Family) error {
	svc := svcChain(w, "KUBE-SVC-", "web")
	var errs []error
	if n := len(t.endpoints(svc)); n != 2 {
		errs = append(errs, fmt.Errorf("%s leads to %d endpoint chains, not 2:\n%s", svc, n, t.text(svc)))
	}
	for _, pod := range []string{"a1", "a2"} {
		endpoint := netip.AddrPortFrom(spec.Must(w.Host(pod)).Addr(family), 8080)
		sep := chainOf("KUBE-SEP-", w.Namespace()+"/web", "tcp", endpoint.String())
		errs = append(errs, t.want([]string{svc, "-j " + sep},
			[]string{sep, "-s " + prefix(endpoint.Addr()), "-j KUBE-MARK-MASQ"},
			[]string{sep, "-p tcp", "-j DNAT", "--to-destination " + endpoint.String()}))
		if n := len(t[sep]); n != 2 {
			errs = append(errs, fmt.Errorf("%s has %d rules, not 2", sep, n))
		}
	}
	return errors.Join(errs...)
}

// masqueradeMark accepts the three rules of today and the single one of older releases.
func masqueradeMark(_ spec.World, t table, _ lab.Family) error {
	err := t.want([]string{"KUBE-MARK-MASQ", "-j MARK", "--set-xmark 0x4000/0x4000"})
	today := t.consists("KUBE-POSTROUTING", []string{"-m mark", "! --mark 0x4000/0x4000", "-j RETURN"},
		[]string{"-j MARK", "--set-xmark 0x4000/0x0"}, []string{"-j MASQUERADE"})
	before := t.consists("KUBE-POSTROUTING", []string{"-m mark", "--mark 0x4000/0x4000", "-j MASQUERADE"})
	if !today && !before {
		err = errors.Join(err, fmt.Errorf("KUBE-POSTROUTING is not: return unmarked, clear the mark, masquerade:\n%s",
			t.text("KUBE-POSTROUTING")))
	}
	return err
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
	port := "--dport " + strconv.Itoa(int(nodePort.Port()))
	for _, node := range []string{"n1", "n3"} {
		nat := save(ctx, w, node, family, "nat")
		if err := nat.want([]string{"KUBE-NODEPORTS", port, "-j " + ext},
			[]string{ext, "-s", "-j " + svc}, // which range tells pods apart is a setting
			[]string{ext, "--src-type LOCAL", "-j KUBE-MARK-MASQ"}, []string{ext, "--src-type LOCAL", "-j " + svc},
		); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", node, err))
		}
		if _, err := nat.find(ext, "-j "+svl); node == "n1" {
			errs = append(errs, err)
		} else if err == nil {
			errs = append(errs, fmt.Errorf("%s has no pod, but %s leads to %s", node, ext, svl))
		}
	}
	filter := save(ctx, w, "n3", family, "filter")
	errs = append(errs, filter.want([]string{"KUBE-EXTERNAL-SERVICES", "--dst-type LOCAL", port, "-j DROP"}))
	return errors.Join(errs...)
}

func dropPath(ctx context.Context, w spec.World, family lab.Family) error {
	empty := spec.Must(w.Resolve(spec.ClusterIPOf("empty", 80), family, "tcp"))
	local := spec.Must(w.Resolve(spec.NodePortAt("n3", "local", 80), family, "tcp"))
	fenced := spec.Must(w.Resolve(spec.IngressOf("fenced", 80), family, "tcp"))
	return save(ctx, w, "n3", family, "filter").want([][]string{
		{"KUBE-SERVICES", "-d " + prefix(empty.Addr()), "--dport 80", "-j REJECT"},
		{"KUBE-EXTERNAL-SERVICES", "--dst-type LOCAL", "--dport " + strconv.Itoa(int(local.Port())), "-j DROP"},
		{"KUBE-PROXY-FIREWALL", "-d " + prefix(fenced.Addr()), "--dport 80", "-j DROP"},
		{"INPUT", "-j KUBE-PROXY-FIREWALL"}, {"FORWARD", "-j KUBE-PROXY-FIREWALL"},
		{"INPUT", "-j KUBE-EXTERNAL-SERVICES"},
		{"FORWARD", "-j KUBE-SERVICES"}, {"OUTPUT", "-j KUBE-SERVICES"},
	}...)
}

func forward(_ spec.World, t table, _ lab.Family) error {
	err := t.want([]string{"FORWARD", "-j KUBE-FORWARD"})
	if !t.consists("KUBE-FORWARD", []string{"--ctstate INVALID", "-j DROP"},
		[]string{"-m mark", "--mark 0x4000/0x4000", "-j ACCEPT"},
		[]string{"--ctstate RELATED,ESTABLISHED", "-j ACCEPT"}) {
		err = errors.Join(err, fmt.Errorf("KUBE-FORWARD is not: drop INVALID, accept marked, accept established:\n%s",
			t.text("KUBE-FORWARD")))
	}
	return err
}
