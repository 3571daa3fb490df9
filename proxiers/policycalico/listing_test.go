// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// listing is what an article of 2020 shows of a pod db that only pods with a label may reach, with the ids of rules,
// the policy and the set written as X.
const listing = `
-A cali-from-wl-dispatch -i cali95aa86cbb2a -m comment --comment "cali:X" -g cali-fw-cali95aa86cbb2a
-A cali-fw-cali95aa86cbb2a -m comment --comment "cali:X" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-cali95aa86cbb2a -m comment --comment "cali:X" -m conntrack --ctstate INVALID -j DROP
-A cali-fw-cali95aa86cbb2a -m comment --comment "cali:X" -j MARK --set-xmark 0x0/0x10000
-A cali-fw-cali95aa86cbb2a -p udp -m comment --comment "cali:X" -m comment --comment "Drop VXLAN encapped packets originating in pods" -m multiport --dports 4789 -j DROP
-A cali-fw-cali95aa86cbb2a -p ipencap -m comment --comment "cali:X" -m comment --comment "Drop IPinIP encapped packets originating in pods" -j DROP
-A cali-fw-cali95aa86cbb2a -m comment --comment "cali:X" -j cali-pro-kns.default
-A cali-fw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Return if profile accepted" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-fw-cali95aa86cbb2a -m comment --comment "cali:X" -j cali-pro-ksa.default.default
-A cali-fw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Return if profile accepted" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-fw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Drop if no profiles matched" -j DROP
-A cali-to-wl-dispatch -o cali95aa86cbb2a -m comment --comment "cali:X" -g cali-tw-cali95aa86cbb2a
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m conntrack --ctstate INVALID -j DROP
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -j MARK --set-xmark 0x0/0x10000
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Start of policies" -j MARK --set-xmark 0x0/0x20000
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m mark --mark 0x0/0x20000 -j cali-pi-X
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Return if policy accepted" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Drop if no policies passed packet" -m mark --mark 0x0/0x20000 -j DROP
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -j cali-pri-kns.default
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Return if profile accepted" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -j cali-pri-ksa.default.default
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Return if profile accepted" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-tw-cali95aa86cbb2a -m comment --comment "cali:X" -m comment --comment "Drop if no profiles matched" -j DROP
-A cali-pi-X -m comment --comment "cali:X" -m set --match-set cali40s:X src -j MARK --set-xmark 0x10000/0x10000
-A cali-pi-X -m comment --comment "cali:X" -m mark --mark 0x10000/0x10000 -j RETURN
`

var named = regexp.MustCompile(`(cali:|cali40s:|cali-pi-)[A-Za-z0-9_-]+`)

// beyond are the rules that are here and not in the article: logs before drops, and tunnels over IPv6.
var beyond = regexp.MustCompile(` -j NFLOG | -p ipv6 `)

// TestListing: each chain has the article's rules in their order, and no others but those that are known to be more
// here.
func TestListing(t *testing.T) {
	state := &store.Snapshot{}
	ports := policy.Ports{}
	for _, p := range []struct{ name, device, addr, label string }{
		{"backend-867fd6dff-mjf92", "cali2b1490aa46a", "10.88.0.27", "backend"},
		{"db-8d66ff5f7-bp6kf", "cali95aa86cbb2a", "10.88.0.26", "db"},
		{"frontend-8b474f47-zdqdv", "cali505cfbeac50", "10.88.0.24", "frontend"},
	} {
		ports[netip.MustParseAddr(p.addr)] = p.device
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.name, Labels: map[string]string{"app": p.label}},
			Spec:       corev1.PodSpec{NodeName: "minikube"}, Status: corev1.PodStatus{PodIP: p.addr},
		}
		if p.label == "backend" {
			pod.Labels["networking/allow-db-access"] = "true"
		}
		state.Pods = append(state.Pods, pod)
	}
	state.NetworkPolicies = append(state.NetworkPolicies, proxiertest.Policy(t, `
metadata: {namespace: default, name: allow-db-access}
spec:
  podSelector: {matchLabels: {app: "db"}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {networking/allow-db-access: "true"}}}]}]`))

	f := onNode(t, proxiertest.Node(t, lab.V4))
	if err := f.Program(t.Context(), (&policy.Compiler{Node: "minikube"}).Compile(state), ports); err != nil {
		t.Fatal(err)
	}
	text, err := f.programs.SaveText(t.Context(), xtables.Filter)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(named.ReplaceAllString(string(text), "${1}X")) {
		of := strings.Contains(line, "95aa86cbb2a") || strings.HasPrefix(line, "-A cali-pi-X")
		if of && strings.HasPrefix(line, "-A ") && !strings.HasPrefix(line, "-A cali-from-ipvs") &&
			!beyond.MatchString(line) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := strings.Split(strings.TrimSpace(listing), "\n")
	byChain := func(a, b string) int { return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1]) }
	slices.SortStableFunc(got, byChain)
	slices.SortStableFunc(want, byChain)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	dump, err := f.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		": [10.88.0.27]\n", "pod default/db-8d66ff5f7-bp6kf, ingress: isolated by default/allow-db-access",
		"what NetworkPolicy default/allow-db-access allows for ingress", "# ingress[0] from[0]\n",
	} {
		if !strings.Contains(string(dump), line) {
			t.Errorf("not in the dump: %s\n%s", line, dump)
		}
	}
}
