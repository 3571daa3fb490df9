// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// annotationIngressClass named the class of an Ingress before spec.ingressClassName did.
const annotationIngressClass = "kubernetes.io/ingress.class"

// admitIngress completes and checks an Ingress. A new one without a class gets the default class, if there is one.
func (tx *Tx) admitIngress(in *networkingv1.Ingress, isNew bool) field.ErrorList {
	if _, named := in.Annotations[annotationIngressClass]; isNew && !named && in.Spec.IngressClassName == nil {
		in.Spec.IngressClassName = tx.defaultIngressClass()
	}
	spec, path := &in.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified")
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for i := range spec.Rules {
		errs = append(errs, validateIngressRule(&spec.Rules[i], path.Child("rules").Index(i))...)
	}
	for i, tls := range spec.TLS {
		for j, host := range tls.Hosts {
			errs = append(errs, validateIngressHost(path.Child("tls").Index(i).Child("hosts").Index(j), host)...)
		}
		errs = append(errs, checkSet(path.Child("tls").Index(i).Child("secretName"), tls.SecretName,
			validation.IsDNS1123Subdomain)...)
	}
	if c := spec.IngressClassName; c != nil {
		errs = append(errs, check(path.Child("ingressClassName"), *c, validation.IsDNS1123Subdomain)...)
	}
	return errs
}

// defaultIngressClass returns the name of the newest class that is marked as the default, or nil.
func (tx *Tx) defaultIngressClass() *string {
	var found []Object
	for _, c := range tx.s.tables[KindIngressClass].objectsInOrder() {
		if c.GetAnnotations()[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil
	}
	newest := slices.MinFunc(found, func(a, b Object) int {
		return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time),
			strings.Compare(a.GetName(), b.GetName()))
	})
	return ptr.To(newest.GetName())
}

func validateIngressHost(path *field.Path, host string) field.ErrorList {
	if strings.Contains(host, "*") {
		return check(path, host, validation.IsWildcardDNS1123Subdomain)
	}
	return check(path, host, validation.IsDNS1123Subdomain)
}

func validateIngressRule(rule *networkingv1.IngressRule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if host := path.Child("host"); rule.Host != "" {
		if len(validation.IsValidIP(nil, rule.Host)) == 0 {
			errs = invalid(host, rule.Host, "must be a DNS name, not an IP address")
		}
		errs = append(errs, validateIngressHost(host, rule.Host)...)
	}
	if rule.HTTP == nil {
		return errs
	}
	paths := path.Child("http", "paths")
	if len(rule.HTTP.Paths) == 0 {
		errs = append(errs, field.Required(paths, ""))
	}
	for i := range rule.HTTP.Paths {
		errs = append(errs, validateIngressPath(&rule.HTTP.Paths[i], paths.Index(i))...)
	}
	return errs
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	errs := oneOf(path.Child("pathType"), *p.PathType, networkingv1.PathTypeExact,
		networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	at, any := path.Child("path"), *p.PathType == networkingv1.PathTypeImplementationSpecific
	if !strings.HasPrefix(p.Path, "/") && (p.Path != "" || !any) {
		errs = append(errs, field.Invalid(at, p.Path, "must be an absolute path"))
	}
	if !any {
		for _, bad := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, bad) {
				errs = append(errs, field.Invalid(at, p.Path, "must not contain '"+bad+"'"))
			}
		}
		for _, bad := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, bad) {
				errs = append(errs, field.Invalid(at, p.Path, "cannot end with '"+bad+"'"))
			}
		}
	}
	return append(errs, validateBackend(&p.Backend, path.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return invalid(path, "", "cannot set both resource and service backends")
	case b.Resource != nil:
		return nil
	case b.Service == nil:
		return invalid(path, "", "resource or service backend is required")
	}
	var errs field.ErrorList
	if name := path.Child("service", "name"); b.Service.Name == "" {
		errs = append(errs, field.Required(name, ""))
	} else {
		errs = append(errs, check(name, b.Service.Name, validation.IsDNS1123Label)...)
	}
	port := b.Service.Port
	switch {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, check(path.Child("service", "port", "name"), port.Name, validation.IsValidPortName)...)
	case port.Number != 0:
		errs = append(errs, validatePort(path.Child("service", "port", "number"), port.Number)...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

// admitIngressClass completes and checks a class of Ingresses.
func admitIngressClass(c, old *networkingv1.IngressClass) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if old != nil {
		errs = immutable(path.Child("controller"), c.Spec.Controller, old.Spec.Controller)
	}
	ref := c.Spec.Parameters
	if ref == nil {
		return errs
	}
	setDefault(&ref.Scope, ptr.To(networkingv1.IngressClassParametersReferenceScopeCluster))
	path = path.Child("parameters")
	errs = append(errs, checkSet(path.Child("apiGroup"), ptr.Deref(ref.APIGroup, ""), validation.IsDNS1123Subdomain)...)
	for _, p := range []struct{ field, value string }{{"kind", ref.Kind}, {"name", ref.Name}} {
		if p.value == "" {
			errs = append(errs, field.Required(path.Child(p.field), ""))
		}
		errs = append(errs, checkSet(path.Child(p.field), p.value, content.IsPathSegmentName)...)
	}
	errs = append(errs, oneOf(path.Child("scope"), *ref.Scope, networkingv1.IngressClassParametersReferenceScopeCluster,
		networkingv1.IngressClassParametersReferenceScopeNamespace)...)
	namespaced, at := *ref.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace, path.Child("namespace")
	switch {
	case namespaced && ref.Namespace == nil:
		errs = append(errs, field.Required(at, "`parameters.scope` is set to 'Namespace'"))
	case namespaced:
		for _, m := range apivalidation.ValidateNamespaceName(*ref.Namespace, false) {
			errs = append(errs, field.Invalid(at, *ref.Namespace, m))
		}
	case ref.Namespace != nil:
		errs = append(errs, field.Forbidden(at, "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}
