"""The group admissionregistration.k8s.io: webhooks and policies that judge or change requests.

Here is what the objects must look like; admission calls webhooks and evaluates policies. CEL expressions are
checked where they are compiled, not here.
"""
