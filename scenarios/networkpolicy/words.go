// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// denied is what a policy makes of a connection. Whether it is dropped or refused is left to the enforcer.
const denied = spec.Silence | spec.Refused | spec.Unreachable

// echo is a pod that answers on 8080 and 8081, by TCP and by UDP, and can ask as well.
func echo(name, node string, options ...PodOption) *corev1.Pod {
	return Pod(name, node, append([]PodOption{TCP(8080), UDP(8080), TCP(8081), UDP(8081)}, options...)...)
}

// labels are a selector. Without any it selects everything.
func labels(pairs ...string) metav1.LabelSelector {
	var s metav1.LabelSelector
	for pair := range slices.Chunk(pairs, 2) {
		metav1.AddLabelToSelector(&s, pair[0], pair[1])
	}
	return s
}

// pod selects the pod of a name, by the label that each one has.
func pod(name string) metav1.LabelSelector { return labels("pod", name) }

// policy is a NetworkPolicy for the pods that it selects.
func policy(name string, selects metav1.LabelSelector, directions ...direction) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: selects},
	}
	for _, d := range directions {
		d(&p.Spec)
	}
	return p
}

// direction is one of the two in which a policy isolates.
type direction func(*networkingv1.NetworkPolicySpec)

// rule allows peers, all of them if there are none, ports.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// ingress isolates: nothing comes in but what the rules allow.
func ingress(rules ...rule) direction {
	return func(s *networkingv1.NetworkPolicySpec) {
		s.PolicyTypes = append(s.PolicyTypes, networkingv1.PolicyTypeIngress)
		for _, r := range rules {
			s.Ingress = append(s.Ingress, networkingv1.NetworkPolicyIngressRule{From: r.peers, Ports: r.ports})
		}
	}
}

// egress isolates: nothing goes out but what the rules allow.
func egress(rules ...rule) direction {
	return func(s *networkingv1.NetworkPolicySpec) {
		s.PolicyTypes = append(s.PolicyTypes, networkingv1.PolicyTypeEgress)
		for _, r := range rules {
			s.Egress = append(s.Egress, networkingv1.NetworkPolicyEgressRule{To: r.peers, Ports: r.ports})
		}
	}
}

// allow is a rule for each of the peers.
func allow(peers ...networkingv1.NetworkPolicyPeer) rule { return rule{peers: peers} }

// on limits a rule to a port, and to others that it already has.
func (r rule) on(proto corev1.Protocol, port int) rule {
	return r.onPort(proto, intstr.FromInt(port))
}

// onNamed is on for the TCP port of a name.
func (r rule) onNamed(name string) rule {
	return r.onPort(corev1.ProtocolTCP, intstr.FromString(name))
}

// onRange is on for the ports from first to last.
func (r rule) onRange(proto corev1.Protocol, first, last int32) rule {
	r = r.on(proto, int(first))
	r.ports[len(r.ports)-1].EndPort = &last
	return r
}

func (r rule) onPort(proto corev1.Protocol, at intstr.IntOrString) rule {
	r.ports = append(slices.Clone(r.ports), networkingv1.NetworkPolicyPort{Protocol: &proto, Port: &at})
	return r
}

// pods are the selected pods of the policy's namespace.
func pods(s metav1.LabelSelector) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &s}
}

// podsIn are the selected pods of the selected namespaces.
func podsIn(namespaces, s metav1.LabelSelector) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &namespaces, PodSelector: &s}
}

// block is a range of addresses, without some of it.
func block(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

// applyFrom is an action that applies a policy which allows the addresses of hosts to come in.
func applyFrom(name string, selects metav1.LabelSelector, hosts ...string) spec.Action {
	return applyBlocks(name, selects, ingress, func(w spec.World) []netip.Addr { return addrsOf(w, hosts) })
}

// applyTo is an action that applies a policy which allows to send to the addresses of hosts.
func applyTo(name string, selects metav1.LabelSelector, hosts ...string) spec.Action {
	return applyBlocks(name, selects, egress, func(w spec.World) []netip.Addr { return addrsOf(w, hosts) })
}

// applyToService is applyTo for the ClusterIPs of a Service.
func applyToService(name string, selects metav1.LabelSelector, service string) spec.Action {
	return applyBlocks(name, selects, egress, func(w spec.World) (all []netip.Addr) {
		for _, at := range ResolveAll(w, spec.ClusterIPRaw(service, 1), "tcp") {
			all = append(all, at.Addr())
		}
		return all
	})
}

// applyBlocks is an action that applies a policy with a rule for some addresses.
func applyBlocks(name string, selects metav1.LabelSelector, d func(...rule) direction,
	addrs func(spec.World) []netip.Addr) spec.Action {
	return NewAction("apply "+name, func(w spec.World) error {
		var r rule
		for _, a := range addrs(w) {
			r.peers = append(r.peers, block(netip.PrefixFrom(a, a.BitLen()).String()))
		}
		return w.Apply(policy(name, selects, d(r)))
	})
}

// addrsOf are all addresses of hosts: of a node those, too, that it has in the network of pods.
func addrsOf(w spec.World, hosts []string) (all []netip.Addr) {
	for _, name := range hosts {
		all = append(all, spec.Must(spec.Must(w.Host(name)).LocalAddrs())...)
	}
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return a.IsLoopback() || a.IsLinkLocalUnicast() })
}

// edit changes a policy.
func edit(name string, change func(*networkingv1.NetworkPolicySpec)) spec.Action {
	return NewAction("edit NetworkPolicy "+name, func(w spec.World) error {
		return store.Update(w.Store(), w.Namespace(), name, func(p *networkingv1.NetworkPolicy) { change(&p.Spec) })
	})
}

// label sets a label of a pod, or takes it away if the value is empty.
func label(name, key, value string) spec.Action {
	return NewAction("label pod "+name+" "+key+"="+value, func(w spec.World) error {
		return store.Update(w.Store(), w.Namespace(), name, func(p *corev1.Pod) { setLabel(p, key, value) })
	})
}

// labelNamespace is label for a namespace.
func labelNamespace(name, key, value string) spec.Action {
	return NewAction("label namespace "+name+" "+key+"="+value, func(w spec.World) error {
		return store.Update(w.Store(), "", name, func(n *corev1.Namespace) { setLabel(n, key, value) })
	})
}

// deleteNamespace deletes a namespace with all that is in it.
func deleteNamespace(name string) spec.Action {
	return NewAction("delete namespace "+name, func(w spec.World) error {
		return w.Store().Delete(store.KindNamespace, "", name)
	})
}

func setLabel(o store.Object, key, value string) {
	all := o.GetLabels()
	if all == nil {
		all = map[string]string{}
	}
	if all[key] = value; value == "" {
		delete(all, key)
	}
	o.SetLabels(all)
}

// open are rows that want the pod to answer everybody, by TCP and UDP.
func open(to string, from ...string) []spec.Row {
	return each(to, from, spec.Row{Servers: []string{to}})
}

// shut are rows that want it to answer none of them.
func shut(to string, from ...string) []spec.Row {
	return each(to, from, spec.Row{Want: denied})
}

func each(to string, from []string, row spec.Row) []spec.Row {
	var rows []spec.Row
	for _, f := range from {
		for _, proto := range []string{"tcp", "udp"} {
			r := row
			r.From, r.To, r.Proto = f, spec.HostAt(to, 8080), proto
			rows = append(rows, r)
		}
	}
	return rows
}

// step is a step with rows of several kinds.
func step(name string, do []spec.Action, rows ...[]spec.Row) spec.Step {
	return spec.Step{Name: name, Do: do, Rows: slices.Concat(rows...)}
}

// do lists actions.
func do(actions ...spec.Action) []spec.Action { return actions }

var enforced = []spec.Feature{spec.NetworkPolicy}
