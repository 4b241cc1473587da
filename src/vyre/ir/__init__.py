"""What is a program?"""
