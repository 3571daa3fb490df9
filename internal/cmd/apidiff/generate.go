// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator makes manifests: mostly valid, with edges and mistakes.
type generator struct{ *rand.Rand }

// generate returns cases that depend on the seed alone.
func generate(seed uint64, n int) []testCase {
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	kinds := []func() testCase{g.services, g.services, g.slices, g.policies, g.pods}
	var out []testCase
	for i := range n {
		c := kinds[i%len(kinds)]()
		c.name = fmt.Sprintf("seed-%d-case-%d", seed, i)
		out = append(out, c)
	}
	return out
}

// one returns one of the values.
func one[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

// maybe reports true in one of n cases.
func (g generator) maybe(n int) bool { return g.IntN(n) == 0 }

// fields returns some of the fields, each in one of n cases.
func (g generator) fields(n int, all object) object {
	out := object{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if g.maybe(n) {
			out[key] = all[key]
		}
	}
	return out
}

// services changes a Service twice and deletes it.
func (g generator) services() testCase {
	path := services + "/web"
	return testCase{watched: []string{services}, steps: []request{
		post(services, service("web", g.serviceSpec())),
		get(path),
		patch(path, mergePatch, object{"spec": g.serviceSpec()}),
		patch(path, mergePatch, object{"spec": g.fields(3, g.serviceFields())}),
		remove(path),
	}}
}

func (g generator) serviceSpec() object {
	spec := object{"type": one(g, "ClusterIP", "ClusterIP", "NodePort", "NodePort", "LoadBalancer", "LoadBalancer",
		"ExternalName", "Other")}
	if !g.maybe(8) {
		spec["ports"] = g.servicePorts()
	}
	if !g.maybe(4) {
		spec["selector"] = object{"app": "web"}
	}
	if spec["type"] == "ExternalName" || g.maybe(12) {
		spec["externalName"] = one(g, "example.org", "example.org.", "10.0.0.1", "-", "")
	}
	maps.Copy(spec, g.fields(6, g.serviceFields()))
	return spec
}

func (g generator) servicePorts() []any {
	var out []any
	for range 1 + g.IntN(3) {
		port := object{"port": one(g, 80.0, 81.0, 443.0, 65535.0, 0.0, 65536.0)}
		maps.Copy(port, g.fields(2, object{
			"name":        one(g, "http", "https", "dns", "Http", strings.Repeat("n", 64), ""),
			"protocol":    one(g, "TCP", "UDP", "SCTP", "tcp"),
			"targetPort":  one[any](g, 8080.0, "http", 0.0, 65536.0, "no--name", "1"),
			"appProtocol": one(g, "kubernetes.io/h2c", "http", "not valid"),
		}))
		if g.maybe(8) {
			port["nodePort"] = one(g, 80.0, 29999.0, 32768.0)
		}
		out = append(out, port)
	}
	return out
}

func (g generator) serviceFields() object {
	return object{
		"clusterIP":  one(g, "None", "", "10.96.0.300", "192.0.2.1"),
		"clusterIPs": one(g, []any{"None"}, []any{"10.96.7.7"}, []any{"fd00:10:96::77", "10.96.7.8"}),
		"ipFamilies": one(g, []any{"IPv4"}, []any{"IPv6"}, []any{"IPv4", "IPv6"}, []any{"IPv4", "IPv4"},
			[]any{"IPv5"}),
		"ipFamilyPolicy": one(g, "SingleStack", "PreferDualStack", "RequireDualStack", "Any"),
		"externalIPs": one(g, []any{"203.0.113.7"}, []any{"203.0.113.7", "2001:db8::7"}, []any{"127.0.0.1"},
			[]any{"x"}),
		"externalTrafficPolicy": one(g, "Cluster", "Local", "Nearby"),
		"internalTrafficPolicy": one(g, "Cluster", "Local", "Nearby"),
		"sessionAffinity":       one(g, "None", "ClientIP", "Cookie"),
		"sessionAffinityConfig": object{"clientIP": object{
			"timeoutSeconds": one(g, 1.0, 10800.0, 86400.0, 0.0, 86401.0)}},
		"loadBalancerSourceRanges": one(g, []any{"192.0.2.0/24"}, []any{" 192.0.2.0/24 ", "2001:db8::/32"},
			[]any{"192.0.2.1"}, []any{}),
		"loadBalancerIP":                one(g, "203.0.113.9", "x"),
		"loadBalancerClass":             one(g, "example.org/lb", "not valid"),
		"allocateLoadBalancerNodePorts": one(g, true, false),
		"healthCheckNodePort":           one(g, 0.0, 31999.0, 99.0),
		"publishNotReadyAddresses":      one(g, true, false),
		"trafficDistribution":           one(g, "PreferClose", "PreferSameZone", "PreferSameNode", "PreferFar"),
	}
}

// slices writes EndpointSlices by hand.
func (g generator) slices() testCase {
	slice := func() object {
		o := manifest("discovery.k8s.io/v1", "EndpointSlice", "web-1", object{
			"metadata":    object{"name": "web-1", "labels": object{"kubernetes.io/service-name": "web"}},
			"addressType": one(g, "IPv4", "IPv4", "IPv6", "FQDN", "IPX"),
		})
		var all []any
		for range g.IntN(3) {
			all = append(all, g.endpoint())
		}
		o["endpoints"] = all
		maps.Copy(o, g.fields(2, object{"ports": []any{g.fields(2, object{"name": one(g, "", "http", "HTTP"),
			"port": one(g, 8080.0, 1.0, 65535.0), "protocol": one(g, "TCP", "UDP", "tcp"), "appProtocol": "http"})}}))
		return o
	}
	path := slicesOf + "/web-1"
	return testCase{watched: []string{slicesOf}, lists: []string{endpoints}, steps: []request{
		post(slicesOf, slice()), get(path), patch(path, mergePatch, slice()), remove(path),
	}}
}

func (g generator) endpoint() object {
	e := object{"addresses": one(g, []any{"10.244.1.5"}, []any{"10.244.1.6", "10.244.1.7"}, []any{"fd00::5"},
		[]any{"a.example"}, []any{"127.0.0.1"}, []any{"224.0.0.1"}, []any{})}
	maps.Copy(e, g.fields(3, object{
		"conditions": g.fields(2, object{"ready": one(g, true, false), "serving": one(g, true, false),
			"terminating": one(g, true, false)}),
		"nodeName":  one(g, "n1", "N1"),
		"zone":      "east",
		"hostname":  one(g, "h", "H"),
		"hints":     object{"forZones": []any{object{"name": "east"}}},
		"targetRef": object{"kind": "Pod", "name": "a", "namespace": "default"},
	}))
	return e
}

// policies writes a NetworkPolicy and changes it.
func (g generator) policies() testCase {
	path := policies + "/p"
	policy := func() object {
		return manifest("networking.k8s.io/v1", "NetworkPolicy", "p", object{"spec": g.policySpec()})
	}
	return testCase{watched: []string{policies}, steps: []request{
		post(policies, policy()), get(path), patch(path, mergePatch, policy()), remove(path),
	}}
}

func (g generator) policySpec() object {
	return g.fields(2, object{
		"podSelector": one(g, object{}, object{"matchLabels": object{"app": "web"}},
			object{"matchLabels": object{"a b": "c"}},
			object{"matchExpressions": []any{object{"key": "app", "operator": one(g, "In", "Exists", "Like"),
				"values": one(g, []any{"a"}, []any{})}}}),
		"policyTypes": one(g, []any{"Ingress"}, []any{"Ingress", "Egress"}, []any{"Sideways"}, []any{}),
		"ingress":     []any{g.fields(2, object{"from": []any{g.peer()}, "ports": []any{g.policyPort()}})},
		"egress":      []any{g.fields(2, object{"to": []any{g.peer()}, "ports": []any{g.policyPort()}})},
	})
}

func (g generator) peer() object {
	return g.fields(2, object{
		"podSelector":       object{},
		"namespaceSelector": object{"matchLabels": object{"team": "a"}},
		"ipBlock": object{"cidr": one(g, "10.0.0.0/8", "2001:db8::/32", "10.0.0.1", "x"),
			"except": one(g, []any{}, []any{"10.1.0.0/16"}, []any{"11.0.0.0/8"}, []any{"10.0.0.0/8"})},
	})
}

func (g generator) policyPort() object {
	return g.fields(2, object{"protocol": one(g, "TCP", "UDP", "SCTP", "ICMP"),
		"port": one[any](g, 80.0, "http", 0.0, 65536.0, "NO_NAME"), "endPort": one(g, 90.0, 70.0, 65536.0)})
}

// pods has pods that come, become ready or not, and go, behind Services.
func (g generator) pods() testCase {
	c := testCase{lists: []string{slicesOf, endpoints}}
	for i := range 2 {
		spec := web(g.fields(3, object{"clusterIP": "None", "publishNotReadyAddresses": true,
			"ipFamilyPolicy": one(g, "PreferDualStack", "RequireDualStack"), "trafficDistribution": "PreferSameZone"}))
		spec["ports"] = []any{object{"name": "a", "port": 80.0, "targetPort": one[any](g, "http", 8080.0, "none")}}
		c.steps = append(c.steps, post(services, service(fmt.Sprintf("s%d", i), spec)))
	}
	for i := range 1 + g.IntN(3) {
		c.steps = append(c.steps, runningPod(fmt.Sprintf("p%d", i), 10+i, !g.maybe(3))...)
	}
	if g.maybe(2) {
		c.steps = append(c.steps, patch(pods+"/p0", mergePatch, object{"metadata": object{"labels": object{"app": "x"}}}))
	}
	if g.maybe(2) {
		c.steps = append(c.steps, request{method: "DELETE", path: pods + "/p0?gracePeriodSeconds=0"})
	}
	return c
}
