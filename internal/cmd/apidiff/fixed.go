// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"net/http"
)

// The collections that cases use.
const (
	services    = "/api/v1/namespaces/{ns}/services"
	pods        = "/api/v1/namespaces/{ns}/pods"
	endpoints   = "/api/v1/namespaces/{ns}/endpoints"
	slicesOf    = "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices"
	policies    = "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies"
	deployments = "/apis/apps/v1/namespaces/{ns}/deployments"
	replicaSets = "/apis/apps/v1/namespaces/{ns}/replicasets"
	nodes       = "/api/v1/nodes"

	daemonSets   = "/apis/apps/v1/namespaces/{ns}/daemonsets"
	statefulSets = "/apis/apps/v1/namespaces/{ns}/statefulsets"
	revisions    = "/apis/apps/v1/namespaces/{ns}/controllerrevisions"
	jobs         = "/apis/batch/v1/namespaces/{ns}/jobs"
	budgets      = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"

	ingresses   = "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses"
	classes     = "/apis/networking.k8s.io/v1/ingressclasses"
	ranges      = "/apis/networking.k8s.io/v1/servicecidrs"
	ipAddresses = "/apis/networking.k8s.io/v1/ipaddresses"
)

const (
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	jsonPatch      = "application/json-patch+json"
)

func post(path string, body any) request {
	return request{method: http.MethodPost, path: path, body: body}
}

func get(path string) request { return request{method: http.MethodGet, path: path} }

func remove(path string) request { return request{method: http.MethodDelete, path: path} }

func patch(path, kind string, body any) request {
	return request{method: http.MethodPatch, path: path, contentType: kind, body: body}
}

// manifest returns an object with a name. More holds its other fields.
func manifest(version, kind, name string, more object) object {
	o := object{"apiVersion": version, "kind": kind, "metadata": object{"name": name}}
	maps.Copy(o, more)
	return o
}

func service(name string, spec object) object {
	return manifest("v1", "Service", name, object{"spec": spec})
}

// web is the spec of a Service with one port.
func web(more object) object {
	spec := object{"selector": object{"app": "web"}, "ports": []any{object{"port": 80.0}}}
	maps.Copy(spec, more)
	return spec
}

// runningPod returns the requests that make a pod and report that it runs, as a kubelet does.
func runningPod(name string, number int, ready bool) []request {
	pod := manifest("v1", "Pod", name, object{
		"metadata": object{"name": name, "labels": object{"app": "web"}},
		"spec": object{"nodeName": "n1", "containers": []any{object{"name": "c", "image": "echo",
			"ports": []any{object{"name": "http", "containerPort": 8080.0}}}}},
	})
	four, six := fmt.Sprintf("10.244.1.%d", number), fmt.Sprintf("fd00:10:244:1::%d", number)
	condition := object{"type": "Ready", "status": map[bool]string{true: "True", false: "False"}[ready]}
	return []request{
		post(pods, pod),
		patch(pods+"/"+name+"/status", mergePatch, object{"status": object{"phase": "Running", "podIP": four,
			"podIPs": []any{object{"ip": four}, object{"ip": six}}, "conditions": []any{condition}}}),
	}
}

// protocol returns the cases about the protocol, and about what generated cases rarely meet.
func protocol() []testCase {
	one := services + "/web"
	return []testCase{
		{name: "fixed-node", steps: []request{
			post(nodes, manifest("v1", "Node", "n1", nil)),
			patch(nodes+"/n1/status", mergePatch, object{"status": object{"addresses": []any{
				object{"type": "InternalIP", "address": "192.168.7.11"}}}}),
		}},
		{name: "fixed-errors", steps: []request{
			get(one), remove(one), get("/api/v1/namespaces/{ns}/nonsense"), get("/apis/none.example/v1"),
			post(services, "{"), post(services, "[]"), post(services, "{}"),
			post(services, manifest("v1", "Pod", "web", nil)), post(services, manifest("apps/v1", "Service", "web", nil)),
			post(services, service("", web(nil))), post(services, service("Web", web(nil))),
			post(services, object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "web", "namespace": "else"},
				"spec": web(nil)}),
			post(services, service("web", object{"ports": "many"})),
			post(services, service("web", web(nil))), post(services, service("web", web(nil))),
			patch(one, "text/plain", "{}"), patch(one, mergePatch, "{"),
			patch(one, jsonPatch, []any{object{"op": "remove", "path": "/spec/nothing"}}),
			patch(one, mergePatch, object{"metadata": object{"resourceVersion": "1"}}),
			patch(one, mergePatch, object{"metadata": object{"name": "other"}}),
			{method: http.MethodPut, path: one, body: service("other", web(nil))},
			{method: http.MethodPut, path: services + "/none", body: service("none", web(nil))},
			{method: http.MethodPost, path: one, body: service("web", web(nil))},
			{method: http.MethodDelete, path: one, body: object{"apiVersion": "v1", "kind": "DeleteOptions",
				"preconditions": object{"uid": "another"}}},
		}},
		{name: "fixed-slice-port", steps: []request{
			post(slicesOf, manifest("discovery.k8s.io/v1", "EndpointSlice", "web-1", object{"addressType": "IPv4",
				"ports": []any{object{"port": 65536.0}}, "endpoints": []any{}})),
		}},
		{name: "fixed-validation-of-fields", steps: []request{
			post(services+"?fieldValidation=Strict", service("web", web(object{"unknown": true}))),
			post(services+"?fieldValidation=Warn", service("web", web(object{"unknown": true}))),
			post(services+"?dryRun=All", service("dry", web(nil))), get(services + "/dry"),
			post(services+"?dryRun=Some", service("dry", web(nil))),
		}},
		{name: "fixed-selectors", steps: []request{
			post(services, service("a", web(nil))), post(services, manifest("v1", "Service", "b", object{
				"metadata": object{"name": "b", "labels": object{"tier": "back"}}, "spec": web(nil)})),
			get(services + "?labelSelector=tier%3Dback"), get(services + "?labelSelector=tier+notin+(back)"),
			get(services + "?labelSelector=%3D%3D"), get(services + "?fieldSelector=metadata.name%3Da"),
			get(services + "?fieldSelector=spec.nothing%3Da"), get(services + "?limit=1"), get(services + "?limit=x"),
		}},
		{name: "fixed-patches", watched: []string{services}, steps: []request{
			post(services, service("web", web(nil))),
			patch(one, strategicPatch, object{"spec": object{"ports": []any{object{"port": 81.0, "name": "more"}}}}),
			patch(one, strategicPatch, object{"spec": object{"ports": []any{object{"port": 80.0, "name": "first"},
				object{"port": 81.0, "name": "more"}}}}),
			patch(one, jsonPatch, []any{object{"op": "replace", "path": "/spec/selector", "value": object{"app": "b"}}}),
			patch(one, mergePatch, object{"metadata": object{"labels": object{"x": "y"}, "annotations": object{"n": "1"}}}),
			patch(one, mergePatch, object{"metadata": object{"labels": object{"x": nil}}}),
			patch(one+"/status", mergePatch, object{
				"metadata": object{"annotations": object{"patched": "status"}},
				"spec":     object{"selector": object{"app": "not-by-status"}},
				"status":   object{"loadBalancer": object{"ingress": []any{object{"ip": "203.0.113.1"}}}}}),
			get(one), get(one + "/status"), remove(one),
		}},
	}
}

// workload returns a workload with the selector and the template that most have.
func workload(version, kind string, more object) object {
	spec := object{"selector": object{"matchLabels": object{"app": "web"}}, "template": object{
		"metadata": object{"labels": object{"app": "web"}},
		"spec":     object{"containers": []any{object{"name": "c", "image": "echo"}}}}}
	maps.Copy(spec, more)
	return manifest(version, kind, "web", object{"spec": spec})
}

// image returns the patch that gives a workload's container another image.
func image(name string) object {
	return object{"spec": object{"template": object{"spec": object{"containers": []any{
		object{"name": "c", "image": name}}}}}}
}

// histories returns the cases about ControllerRevisions, Jobs and PodDisruptionBudgets.
func histories() []testCase {
	job := workload("batch/v1", "Job", object{"selector": nil, "completions": 2.0, "ttlSecondsAfterFinished": 0.0})
	dig(job, "spec", "template", "spec").(object)["restartPolicy"] = "Never"
	budget := func(name string, spec object) object {
		spec["selector"] = object{"matchLabels": object{"app": "web"}}
		return manifest("policy/v1", "PodDisruptionBudget", name, object{"spec": spec})
	}
	return []testCase{
		{name: "fixed-daemon-history", lists: []string{revisions}, steps: []request{
			post(daemonSets, workload("apps/v1", "DaemonSet", object{"minReadySeconds": 1.0})),
			patch(daemonSets+"/web", strategicPatch, image("echo:2")),
		}},
		{name: "fixed-stateful-history", lists: []string{revisions}, steps: []request{
			post(statefulSets, workload("apps/v1", "StatefulSet", object{"serviceName": "web"})),
			patch(statefulSets+"/web", strategicPatch, image("echo:2")),
		}},
		{name: "fixed-job", steps: []request{post(jobs, job), remove(jobs + "/web?propagationPolicy=Background")}},
		{name: "fixed-budgets", lists: []string{budgets}, steps: append(append(runningPod("a", 15, true),
			runningPod("b", 16, false)...), post(budgets, budget("least", object{"minAvailable": 1.0})),
			post(budgets, budget("none", object{})),
			post(budgets, budget("both", object{"minAvailable": 1.0, "maxUnavailable": 1.0})),
			post(budgets, budget("wrong", object{"minAvailable": "many"})),
			post(pods+"/a/eviction", manifest("policy/v1", "Eviction", "a", nil)),
		)},
	}
}

// controllers returns the cases about what controllers make.
func controllers() []testCase {
	return []testCase{
		{name: "fixed-slices", lists: []string{slicesOf, endpoints}, steps: append(append(runningPod("a", 5, true),
			runningPod("b", 6, false)...),
			post(services, service("web", web(object{"ports": []any{object{"port": 80.0, "targetPort": "http"}}}))),
			post(services, service("dual", web(object{"ipFamilyPolicy": "PreferDualStack"}))),
			post(services, service("headless", web(object{"clusterIP": "None"}))),
			post(services, service("early", web(object{"publishNotReadyAddresses": true}))),
		)},
		{name: "fixed-deployment", lists: []string{replicaSets, pods}, steps: []request{
			post(deployments, manifest("apps/v1", "Deployment", "web", object{"spec": object{"replicas": 2.0,
				"selector": object{"matchLabels": object{"app": "web"}}, "template": object{
					"metadata": object{"labels": object{"app": "web"}},
					"spec":     object{"containers": []any{object{"name": "c", "image": "echo"}}}}}})),
			post(deployments, manifest("apps/v1", "Deployment", "wrong", object{"spec": object{
				"selector": object{"matchLabels": object{"app": "web"}}, "template": object{
					"metadata": object{"labels": object{"app": "other"}},
					"spec":     object{"containers": []any{object{"name": "c", "image": "echo"}}}}}})),
			get(deployments + "/web/scale"),
		}},
	}
}
