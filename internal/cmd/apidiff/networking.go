// SPDX-License-Identifier: Apache-2.0

package main

// networking returns the cases about addresses of Services and about Ingresses. They come last: a ServiceCIDR stays.
func networking() []testCase {
	return []testCase{
		{name: "fixed-ranges", lists: []string{ranges}, steps: append(wrongRanges(),
			post(ranges, serviceRange("more", "192.0.2.0/24")),
			patch(ranges+"/more", mergePatch, object{"spec": object{"cidrs": []any{"192.0.2.0/24", "2001:db8:2::/64"}}}),
			patch(ranges+"/more", mergePatch, object{"spec": object{"cidrs": []any{"192.0.3.0/24", "2001:db8:2::/64"}}}),
			patch(ranges+"/more", mergePatch, object{"spec": object{"cidrs": []any{"192.0.2.0/24"}}}),
		)},
		{name: "fixed-addresses", steps: []request{
			post(ipAddresses, claim("255.255.255.255", object{"resource": "things", "name": "a"})),
			post(ipAddresses, claim("fe80::1", object{"group": "example.org", "resource": "things", "name": "a"})),
			post(ipAddresses, claim("fe80::0:2", object{"resource": "things", "name": "a"})),
			post(ipAddresses, claim("10.0.0.256", object{"resource": "things", "name": "a"})),
			post(ipAddresses, claim("10.1.1.1", object{"name": "a/b", "group": "A b"})),
			post(ipAddresses, manifest("networking.k8s.io/v1", "IPAddress", "10.1.1.2", nil)),
			patch(ipAddresses+"/fe80::1", mergePatch, object{"spec": object{"parentRef": object{"name": "b"}}}),
			remove(ipAddresses + "/fe80::1"), remove(ipAddresses + "/255.255.255.255"),
		}},
		{name: "fixed-ingresses", steps: append(ingressRequests(),
			post(classes, ingressClass("first", nil)),
			post(classes, ingressClass("scoped", object{"kind": "k", "name": "n"})),
			post(classes, ingressClass("other", object{"kind": "k", "name": "n", "scope": "Other"})),
			post(classes, ingressClass("nowhere", object{"kind": "k", "name": "n", "scope": "Namespace"})),
			post(classes, ingressClass("both", object{"kind": "k", "name": "n", "namespace": "default"})),
			post(classes, ingressClass("empty", object{"apiGroup": "A b"})),
			patch(classes+"/first", mergePatch, object{"spec": object{"controller": "a.b/d"}}),
			remove(classes+"/first"), remove(classes+"/scoped"),
		)},
	}
}

func serviceRange(name string, cidrs ...any) object {
	return manifest("networking.k8s.io/v1", "ServiceCIDR", name, object{"spec": object{"cidrs": cidrs}})
}

func wrongRanges() []request {
	var out []request
	for _, cidrs := range [][]any{
		{}, {"10.0.0"}, {"10.5.0.1/16"}, {"10.5.0.0/16", "10.6.0.0/16"}, {"10.5.0.0/16", "fd00::/64", "10.6.0.0/16"},
	} {
		out = append(out, post(ranges, serviceRange("wrong", cidrs...)))
	}
	return out
}

func claim(ip string, parent object) object {
	return manifest("networking.k8s.io/v1", "IPAddress", ip, object{"spec": object{"parentRef": parent}})
}

func ingressClass(name string, parameters object) object {
	return manifest("networking.k8s.io/v1", "IngressClass", name,
		object{"spec": object{"controller": "a.b/c", "parameters": parameters}})
}

func ingressRequests() []request {
	backend := func(port object) object { return object{"service": object{"name": "web", "port": port}} }
	http := func(path, kind string) object {
		return object{"rules": []any{object{"host": "example.org", "http": object{"paths": []any{
			object{"path": path, "pathType": kind, "backend": backend(object{"number": 80.0})}}}}}}
	}
	var out []request
	for _, spec := range []object{
		{"defaultBackend": backend(object{"number": 80.0})}, {"defaultBackend": backend(object{"name": "http"})},
		{"defaultBackend": backend(object{"name": "http", "number": 80.0})}, {"defaultBackend": backend(object{})},
		{"defaultBackend": object{}}, {}, {"rules": []any{object{"host": "10.0.0.1"}}},
		{"rules": []any{object{"host": "*.example.org"}}}, {"rules": []any{object{"host": "a.*"}}},
		{"rules": []any{object{"http": object{"paths": []any{}}}}},
		http("/a", "Exact"), http("a", "Prefix"), http("", "Exact"), http("/a//b", "Prefix"), http("/a/..", "Exact"),
		http("", "ImplementationSpecific"), http("x", "ImplementationSpecific"), http("/", "Other"),
		{"defaultBackend": backend(object{"number": 80.0}), "tls": []any{object{"hosts": []any{"A"}, "secretName": "b_c"}}},
		{"defaultBackend": backend(object{"number": 80.0}), "ingressClassName": "A"},
	} {
		out = append(out, post(ingresses, manifest("networking.k8s.io/v1", "Ingress", "web", object{"spec": spec})),
			remove(ingresses+"/web"))
	}
	return out
}
