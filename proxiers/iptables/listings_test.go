// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// People learn what kube-proxy does from listings like these, which are from two articles about releases of 2019 and
// 2020. The test compares each of their lines with ours.

// listed is a line of a listing, as it was printed.
type listed struct {
	chain, line string
	// ours are our equivalent lines, with their chains. Nil means the same line in the same chain.
	ours []string
	// why is the change in kube-proxy since the article, if our line differs.
	why string
}

// TestListings: each line of the articles' listings, or its equivalent, exists, up to the hashes in names.
func TestListings(t *testing.T) {
	webapp := func(clusterIP string, nodePort int32, endpoints ...string) *store.Snapshot {
		return cluster(articleService{"default", "webapp", "", clusterIP, 80, nodePort, endpoints})
	}
	local := webapp("10.111.243.62", 30080, "10.244.120.111")
	local.Services[0].Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	for _, c := range []struct {
		name, node, pods string
		state            *store.Snapshot
		lines            []listed
	}{
		{"traffic", "minikube", "192.167.0.0/16", cluster(
			articleService{"default", "my-nginx-cluster", "", "10.103.1.234", 80, 0, []string{"192.167.1.9"}},
			articleService{"default", "my-nginx-nodeport", "", "10.97.229.148", 80, 30915,
				[]string{"192.167.1.10", "192.167.1.11", "192.167.2.10"}},
			articleService{"kube-system", "kube-dns", "dns-tcp", "10.96.0.10", 53, 0, []string{"192.167.1.138"}},
		), ofTraffic},
		{"webapp", "minikube", "10.244.0.0/16", webapp("10.103.46.104", 31380, "10.244.120.102", "10.244.120.103"), ofWebapp},
		{"policy Local, endpoint", "minikube", "10.244.0.0/16", local, ofLocal["minikube"]},
		{"policy Local, no endpoint", "minikube-m02", "10.244.0.0/16", local, ofLocal["minikube-m02"]},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b Backend) {
				node := proxiertest.Node(t, lab.V4)
				pods := netip.MustParsePrefix(c.pods)
				node.Name, node.ClusterCIDRs = c.node, []netip.Prefix{pods}
				node.PodCIDRs = []netip.Prefix{netip.PrefixFrom(pods.Addr(), 24)}
				in := start(t, b, node)
				proxiertest.Apply(t, in, c.state)
				there := list(t, node, b)
				for _, l := range c.lines {
					want := l.ours
					if want == nil {
						want = []string{bare(l.chain) + " " + plain(l.line)}
					} else if l.why == "" || slices.Contains(want, bare(l.chain)+" "+plain(l.line)) {
						t.Errorf("%s: it is the same here, or nothing says why it is not", l.line)
					}
					for _, w := range want {
						if !slices.Contains(there, w) {
							t.Errorf("%s: %s\nnot here: %s\n%s", l.chain, l.line, w, strings.Join(there, "\n"))
						}
					}
				}
			})
		})
	}
}

// list returns the listing of the tables nat and filter by "iptables -nL", a line for each rule, with its chain first.
func list(t *testing.T, node spec.Node, b Backend) []string {
	t.Helper()
	var all []string
	for _, table := range []string{"nat", "filter"} {
		cmd := exec.CommandContext(t.Context(), "iptables-"+string(b), "-w", "-t", table, "-nL")
		var out strings.Builder
		cmd.Stdout = &out
		if err := node.Host.Run(cmd); err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		chain := ""
		for line := range strings.Lines(out.String()) {
			if name, ok := strings.CutPrefix(line, "Chain "); ok {
				chain, _, _ = strings.Cut(name, " ")
			} else if f := strings.Fields(line); len(f) > 0 && f[0] != "target" {
				all = append(all, bare(chain)+" "+plain(line))
			}
		}
	}
	return all
}

var (
	hashed     = regexp.MustCompile(`\b(KUBE-[A-Z]+)-[A-Z2-7]{16}\b`)
	chance     = regexp.MustCompile(`(probability 0\.\d{3})\d*`)
	emptyPort  = regexp.MustCompile(`(/\* \S+/\S+):( |$)`)
	protocols  = strings.NewReplacer(" 0 -- ", " all -- ", " 6 -- ", " tcp -- ", " 17 -- ", " udp -- ")
	abbreviate = strings.NewReplacer(" -- * * ", " ", " -- ", " ", "anywhere", "0.0.0.0/0", "dpt:www", "dpt:80")
)

// bare returns a name without its hash.
func bare(name string) string { return hashed.ReplaceAllString(name, "$1-X") }

// plain returns a line of a listing without the parts that depend on the release of iptables and its options: counters,
// devices, alignment, numbers for names, digits of a probability. Old listings write an unnamed port with a colon.
func plain(line string) string {
	line = strings.Join(strings.Fields(strings.ReplaceAll(line, "—", "--")), " ")
	line = strings.TrimPrefix(line, "0 0 ")
	line = abbreviate.Replace(protocols.Replace(line))
	return bare(emptyPort.ReplaceAllString(chance.ReplaceAllString(line, "$1"), "$1$2"))
}

// articleService is a Service of an article. Its endpoints are on the node minikube.
type articleService struct {
	namespace, name, port, clusterIP string
	number, nodePort                 int32
	endpoints                        []string
}

func cluster(all ...articleService) *store.Snapshot {
	s := &store.Snapshot{}
	for _, one := range all {
		kind := corev1.ServiceTypeClusterIP
		if one.nodePort != 0 {
			kind = corev1.ServiceTypeNodePort
		}
		s.Services = append(s.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: one.namespace, Name: one.name},
			Spec: corev1.ServiceSpec{
				Type: kind, ClusterIP: one.clusterIP, ClusterIPs: []string{one.clusterIP},
				Ports: []corev1.ServicePort{{Name: one.port, Port: one.number, NodePort: one.nodePort,
					Protocol: corev1.ProtocolTCP}},
			},
		})
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: one.namespace, Name: one.name,
				Labels: map[string]string{discoveryv1.LabelServiceName: one.name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &one.port, Port: &one.number}},
		}
		for _, e := range one.endpoints {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{e},
				NodeName: new("minikube")})
		}
		s.EndpointSlices = append(s.EndpointSlices, slice)
	}
	return s
}
