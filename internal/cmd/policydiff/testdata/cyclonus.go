// SPDX-License-Identifier: Apache-2.0

// Command cyclonus gives the opinion of github.com/mattfenwick/cyclonus. "cyclonus cases IP" prints the clusters of all
// its cases, one JSON document for each step; IP is the address that its ipBlocks are about. "cyclonus judge" reads
// questions and prints answers, one document each.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// cluster has the fields of viplab's oracle.Cluster.
type cluster struct {
	Namespaces map[string]map[string]string
	Pods       []*pod
	Policies   []*networkingv1.NetworkPolicy
}

type pod struct {
	Namespace, Name string
	Labels          map[string]string
	Addrs           []string
	Ports           []corev1.ContainerPort
}

// step is what the cluster is in a step of a case.
type step struct {
	Case, Step int // from 1
	Given      string
	Cluster    cluster
}

// question asks for every pair of ends: pods, and addresses that no pod has.
type question struct {
	Cluster cluster
	Outside []string
	Ports   []port
}

type port struct {
	Number   int32
	Protocol corev1.Protocol
}

// answer has "1" for each connection that is allowed and "0" for others, in the order of sender, target, port.
type answer struct {
	Allowed    string // by the policies as they are
	Simplified string // by the policies as cyclonus simplifies them
}

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "cases":
		err = cases(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == "judge":
		err = judge()
	default:
		err = errors.New("want: cases IP, or: judge")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cyclonus:", err)
		os.Exit(1)
	}
}

// cases prints all cases.
func cases(ip string) error {
	namespaces := []string{"x", "y", "z"}
	out := json.NewEncoder(os.Stdout)
	all := generator.NewTestCaseGenerator(true, ip, namespaces, nil, nil).GenerateAllTestCases()
	for i, c := range all {
		mock := kube.NewMockKubernetes(1)
		base, err := probe.NewDefaultResources(mock, namespaces, []string{"a", "b", "c"}, []int{80, 81},
			[]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, nil, 5, false, "")
		if err != nil {
			return err
		}
		state := &connectivity.TestCaseState{Kubernetes: mock, Resources: base}
		for j, s := range c.Steps {
			for _, a := range s.Actions {
				if err := act(state, a); err != nil {
					return fmt.Errorf("case %d, step %d: %w", i+1, j+1, err)
				}
			}
			if err := out.Encode(step{i + 1, j + 1, c.Description, clusterOf(state)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// act does what cyclonus' own interpreter does for an action.
func act(s *connectivity.TestCaseState, a *generator.Action) error {
	switch {
	case a.CreatePolicy != nil:
		return s.CreatePolicy(a.CreatePolicy.Policy)
	case a.UpdatePolicy != nil:
		return s.UpdatePolicy(a.UpdatePolicy.Policy)
	case a.DeletePolicy != nil:
		return s.DeletePolicy(a.DeletePolicy.Namespace, a.DeletePolicy.Name)
	case a.CreateNamespace != nil:
		return s.CreateNamespace(a.CreateNamespace.Namespace, a.CreateNamespace.Labels)
	case a.SetNamespaceLabels != nil:
		return s.SetNamespaceLabels(a.SetNamespaceLabels.Namespace, a.SetNamespaceLabels.Labels)
	case a.DeleteNamespace != nil:
		return s.DeleteNamespace(a.DeleteNamespace.Namespace)
	case a.ReadNetworkPolicies != nil:
		return s.ReadPolicies(a.ReadNetworkPolicies.Namespaces)
	case a.CreatePod != nil:
		return s.CreatePod(a.CreatePod.Namespace, a.CreatePod.Pod, a.CreatePod.Labels)
	case a.SetPodLabels != nil:
		return s.SetPodLabels(a.SetPodLabels.Namespace, a.SetPodLabels.Pod, a.SetPodLabels.Labels)
	case a.DeletePod != nil:
		return s.DeletePod(a.DeletePod.Namespace, a.DeletePod.Pod)
	}
	return errors.New("an unknown action")
}

// clusterOf returns the state without addresses.
func clusterOf(s *connectivity.TestCaseState) cluster {
	c := cluster{Namespaces: s.Resources.Namespaces, Policies: s.Policies}
	for _, p := range s.Resources.Pods {
		kept := &pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels}
		for _, container := range p.Containers {
			kept.Ports = append(kept.Ports, container.KubeContainer().Ports...)
		}
		c.Pods = append(c.Pods, kept)
	}
	return c
}

// judge answers questions until its input ends.
func judge() error {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var q question
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a := answer{q.table(false), q.table(true)}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// end is a pod, or an address outside.
type end struct {
	*pod
	peer *matcher.TrafficPeer
}

func (q *question) ends() []end {
	var out []end
	for _, p := range q.Cluster.Pods {
		out = append(out, end{p, &matcher.TrafficPeer{IP: p.Addrs[0], Internal: &matcher.InternalPeer{
			PodLabels: p.Labels, NamespaceLabels: q.Cluster.Namespaces[p.Namespace], Namespace: p.Namespace,
		}}})
	}
	for _, ip := range q.Outside {
		out = append(out, end{nil, &matcher.TrafficPeer{IP: ip}})
	}
	return out
}

func (q *question) table(simplify bool) string {
	policy := matcher.BuildNetworkPolicies(simplify, q.Cluster.Policies)
	var out []byte
	ends := q.ends()
	for _, from := range ends {
		for _, to := range ends {
			for _, p := range q.Ports {
				out = append(out, allows(policy, from, to, p))
			}
		}
	}
	return string(out)
}

// allows returns a mark. cyclonus knows one name for the port of a connection, but containers may give a port several.
// Each side allows a connection if it does so by any of the names.
func allows(policy *matcher.Policy, from, to end, p port) byte {
	names := []string{""}
	if to.pod != nil {
		for _, has := range to.Ports {
			if has.ContainerPort == p.Number && has.Protocol == p.Protocol && has.Name != "" {
				names = append(names, has.Name)
			}
		}
	}
	var ingress, egress bool
	for _, name := range names {
		t := &matcher.Traffic{Source: from.peer, Destination: to.peer, ResolvedPort: int(p.Number),
			ResolvedPortName: name, Protocol: p.Protocol}
		ingress = ingress || policy.IsIngressOrEgressAllowed(t, true).IsAllowed()
		egress = egress || policy.IsIngressOrEgressAllowed(t, false).IsAllowed()
	}
	if ingress && egress {
		return '1'
	}
	return '0'
}
