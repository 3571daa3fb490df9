// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Manifests that decode, and what is wrong with them all the same.
func TestManifestErrors(t *testing.T) {
	const (
		pod    = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
		policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: np}\n"
		slice  = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s}\n"
		deploy = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"
		node   = "apiVersion: v1\nkind: Node\nmetadata: {name: n7}\n"
	)
	tests := []struct {
		name, in string
		want     []string
	}{
		{"name", "apiVersion: v1\nkind: Service\nmetadata: {name: web_1}\nspec: {ports: [{port: 80}]}\n",
			[]string{`metadata.name: Invalid value: "web_1"`}},
		{"no name", "apiVersion: v1\nkind: Namespace\nmetadata: {}\n", []string{"metadata.name: Required value"}},
		{"namespace of a node", "apiVersion: v1\nkind: Node\nmetadata: {name: a, namespace: b}\n",
			[]string{"metadata.namespace: Forbidden: not allowed on this type"}},
		{"label", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {a: 'b c'}}\n",
			[]string{`metadata.labels: Invalid value: "b c"`}},
		{"node ranges", node + "spec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.1.0/24, 10.0.0.1]}\n",
			[]string{`spec.podCIDRs[0]: Invalid value: "10.0.1.0/24": must match`,
				`spec.podCIDRs[1]: Invalid value: "10.0.0.1"`}},
		{"node addresses", node + "status: {addresses: [{type: InternalIP, address: x}]}\n",
			[]string{`status.addresses[0].address: Invalid value: "x"`}},
		{"taint", node + "spec: {taints: [{key: a, effect: Never}]}\n",
			[]string{`spec.taints[0].effect: Unsupported value: "Never"`}},

		{"no containers", pod + "spec: {}\n", []string{"spec.containers: Required value"}},
		{"node that does not exist", pod + "spec: {nodeName: nowhere, containers: [{name: c, image: i}]}\n",
			[]string{`spec.nodeName: Not found: "nowhere"`}},
		{"containers", pod + "spec: {containers: [{name: C}, {name: c, image: i, imagePullPolicy: Often}, {name: c, " +
			"image: i}]}\n",
			[]string{`spec.containers[0].name: Invalid value: "C"`, "spec.containers[0].image: Required value",
				`spec.containers[1].imagePullPolicy: Unsupported value: "Often"`, `spec.containers[2].name: Duplicate value: "c"`}},
		{"container ports", pod + "spec: {containers: [{name: c, image: i, ports: [{containerPort: 0}, {containerPort: 1, " +
			"name: a}, {containerPort: 70000, name: a, protocol: udp}]}]}\n",
			[]string{"spec.containers[0].ports[0].containerPort: Invalid value: 0",
				`spec.containers[0].ports[2].name: Duplicate value: "a"`,
				"spec.containers[0].ports[2].containerPort: Invalid value: 70000",
				`spec.containers[0].ports[2].protocol: Unsupported value: "udp"`}},
		{"host ports", pod + "spec: {hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 80}]}, " +
			"{name: b, image: i, ports: [{containerPort: 80}]}]}\n",
			[]string{"spec.containers[1].ports[0].hostPort: Duplicate value: 80"}},
		{"volume that is missing", pod + "spec: {volumes: [{name: a}, {name: a}], containers: [{name: c, image: i, " +
			"volumeMounts: [{name: b, mountPath: /x}]}]}\n",
			[]string{`spec.volumes[1].name: Duplicate value: "a"`, `spec.containers[0].volumeMounts[0].name: Not found: "b"`}},
		{"hostname", pod + "spec: {hostname: a.b, subdomain: C, restartPolicy: Sometimes, containers: [{name: c, image: " +
			"i}]}\n",
			[]string{`spec.hostname: Invalid value: "a.b"`, `spec.subdomain: Invalid value: "C"`,
				`spec.restartPolicy: Unsupported value: "Sometimes"`}},

		{"no selector", deploy + "spec: {template: {spec: {containers: [{name: c, image: i}]}}}\n",
			[]string{"spec.selector: Required value"}},
		{"selector and labels", deploy + "spec: {replicas: -1, selector: {matchLabels: {app: a}}, template: {metadata: " +
			"{labels: {app: b}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n",
			[]string{"spec.template.metadata.labels: Invalid value",
				"`selector` does not match template `labels`: it wants app=a",
				"spec.replicas: Invalid value: -1", `spec.template.spec.restartPolicy: Unsupported value: "Never"`}},

		{"slice without a type", slice + "endpoints: []\n", []string{`addressType: Unsupported value: ""`}},
		{"slice addresses", slice + "addressType: IPv4\nendpoints: [{addresses: ['fd00::1']}, {addresses: []}, " +
			"{addresses: [127.0.0.1, 10.0.0.256]}]\n",
			[]string{`endpoints[0].addresses: Invalid value: "fd00::1": must be an IPv4 address`,
				"endpoints[1].addresses: Required value",
				`endpoints[2].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range`,
				`endpoints[2].addresses[1]: Invalid value: "10.0.0.256"`}},
		{"slice ports", slice + "addressType: IPv4\nendpoints: []\nports: [{port: 0}, {name: '', port: 1}, {name: A, " +
			"port: 2, protocol: ICMP}]\n",
			[]string{"ports[0].port: Invalid value: 0", `ports[1].name: Duplicate value: ""`,
				`ports[2].name: Invalid value: "A"`, `ports[2].protocol: Unsupported value: "ICMP"`}},

		{"policy blocks", policy + "spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: " +
			"[11.0.0.0/16, 10.0.0.0/8, 10.1.0.0/16]}}, {}, {ipBlock: {cidr: 10.0.0.0}, podSelector: {}}, {ipBlock: {cidr: " +
			"x}}]}]}\n",
			[]string{`spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset`,
				`spec.ingress[0].from[0].ipBlock.except[1]: Invalid value: "10.0.0.0/8": must be a strict subset`,
				"spec.ingress[0].from[1]: Required value: must specify a peer",
				"spec.ingress[0].from[2]: Forbidden: may not specify both ipBlock and another peer",
				`spec.ingress[0].from[3].ipBlock.cidr: Invalid value: "x"`}},
		{"policy ports", policy + "spec: {podSelector: {}, egress: [{ports: [{port: 0}, {port: 80, endPort: 79}, {port: " +
			"http, endPort: 80}, {endPort: 80}, {protocol: tcp, port: 1}]}], policyTypes: [Egress, Egress, Both]}\n",
			[]string{"spec.egress[0].ports[0].port: Invalid value: 0",
				"spec.egress[0].ports[1].endPort: Invalid value: 79: must be greater than or equal to `port`",
				"spec.egress[0].ports[2].endPort: Invalid value: 80: may not be specified when `port` is non-numeric",
				"spec.egress[0].ports[3].endPort: Invalid value: 80: may not be specified when `port` is not specified",
				`spec.egress[0].ports[4].protocol: Unsupported value: "tcp"`, `spec.policyTypes[1]: Duplicate value: "Egress"`,
				`spec.policyTypes[2]: Unsupported value: "Both"`}},
		{"policy selector", policy + "spec: {podSelector: {matchExpressions: [{key: a, operator: Like, values: [b]}]}}\n",
			[]string{`spec.podSelector.matchExpressions[0].operator: Invalid value: "Like"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStore(t, Config{}, "n1")
			before := s.Snapshot()
			err := s.Apply(append(decode(t, test.in), newPod("fine", "n1", nil))...)
			if !apierrors.IsInvalid(err) {
				t.Fatalf("error %v, want that it is invalid", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant in it: %s", err, want)
				}
			}
			if s.Snapshot() != before {
				t.Error("something was stored")
			}
		})
	}
}

// Everything wrong with every object of a call is in its error.
func TestAllErrorsAtOnce(t *testing.T) {
	s := newTestStore(t, Config{})
	err := s.Apply(newPod("a", "nowhere", nil), newService("b", func(svc *corev1.Service) { svc.Spec.Ports = nil }),
		newService("c"))
	for _, want := range []string{`Pod "default/a" is invalid`, `Service "default/b" is invalid`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if n := len(s.Snapshot().Services); n != 0 {
		t.Errorf("%d Services were stored", n)
	}
	// What failed gives back what it took.
	apply(t, s, newService("c"))
}

func TestImmutableFields(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	const slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s}\nendpoints: []\n"
	apply(t, s, decode(t, slice+"addressType: IPv4\n")...)
	if err := s.Apply(decode(t, slice+"addressType: IPv6\n")...); err == nil ||
		!strings.Contains(err.Error(), `addressType: Invalid value: "IPv6": field is immutable (it is IPv4)`) {
		t.Errorf("addressType: %v", err)
	}
	apply(t, s, newDeployment("d", 1))
	err := Update(s, "default", "d", func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels = app("e")
		d.Spec.Template.Labels = app("e")
	})
	if err == nil || !strings.Contains(err.Error(),
		`spec.selector: Invalid value: "app=e": field is immutable (it is app=d)`) {
		t.Errorf("selector: %v", err)
	}
	n := newNode("n2", "")
	n.Spec.PodCIDR = "10.244.1.0/24"
	apply(t, s, n)
	n.Spec.PodCIDR = "10.244.2.0/24"
	if err := s.Apply(n); err == nil || !strings.Contains(err.Error(), "spec.podCIDRs: Forbidden") {
		t.Errorf("podCIDR: %v", err)
	}
}
